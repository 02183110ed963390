import type { PageProps } from "./props";
export function CapacityPage(_: PageProps) {
  return <p class="note">to come</p>;
}
