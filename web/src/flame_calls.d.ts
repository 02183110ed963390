// The functions that the drawing of a profile shares with the dashboard.

declare module "*/flame_calls.js" {
  export interface Call<C> {
    label: string;
    name: string;
    x: number;
    width: number;
    waited: number;
    parent: C | undefined;
    children: C[];
  }

  export interface Place {
    x: number;
    width: number;
    outer: boolean;
  }

  export function fitted(label: string, room: number): string;
  export function placed<C extends Call<C>>(
    call: C,
    target: C,
    left: number,
    width: number,
  ): Place | null;
  export function search<C extends Call<C>>(
    calls: C[],
    text: string,
  ): { found: Set<C>; waited: number };
  export function reached<C extends Call<C>>(
    call: C,
    key: string,
    isShown: (call: C) => boolean,
  ): C | undefined;
}
