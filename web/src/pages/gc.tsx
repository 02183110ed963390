import type { PageProps } from "./props";
export function GcPage(_: PageProps) {
  return <p class="note">to come</p>;
}
