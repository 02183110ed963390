// The properties of every page.

import type { Address } from "../address";
import { selectionParameters } from "../address";
import type { Row } from "../comparison";
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

/** The parameters for a row of the comparison. */
export function askedOf({ from, to, selection }: Row): [string, string][] {
  return [["from", from.toFixed(3)], ["to", to.toFixed(3)], ...selectionParameters(selection)];
}
