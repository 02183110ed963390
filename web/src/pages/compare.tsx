import type { PageProps } from "./props";
export function ComparePage(_: PageProps) {
  return <p class="note">to come</p>;
}
