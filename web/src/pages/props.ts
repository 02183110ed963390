// The properties of every page.

import type { Address } from "../address";
import { selectionParameters } from "../address";
import type { Now } from "../model";
import { parameters } from "../range";

export interface PageProps {
  address: Address;
  now: Now | null;
}

/** The parameters that nearly every request has: the range and the selection. */
export function asked(address: Address): [string, string][] {
  return [...parameters(address.range), ...selectionParameters(address.selection)];
}
