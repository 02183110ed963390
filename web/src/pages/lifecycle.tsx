import type { PageProps } from "./props";
export function LifecyclePage(_: PageProps) {
  return <p class="note">to come</p>;
}
