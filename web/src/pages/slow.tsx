import type { PageProps } from "./props";
export function SlowPage(_: PageProps) {
  return <p class="note">to come</p>;
}
