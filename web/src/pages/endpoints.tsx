import type { PageProps } from "./props";
export function EndpointsPage(_: PageProps) {
  return <p class="note">to come</p>;
}
