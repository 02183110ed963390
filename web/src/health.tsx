// The recorder's losses, on every page while there are any, and whether the recorder fails to
// answer. Losses are at the top; changes of detail alone are at the bottom.

import type { Answer } from "./answers";
import { count } from "./format";
import type { Health, Now } from "./model";

/** Losses: the field of `recorder` with the count, and a text for it. */
const LOSSES: readonly (readonly [string, string])[] = [
  ["malformed", "malformed datagrams dropped"],
  ["refused", "datagrams refused, beyond what one sender may report"],
  ["sequence_gaps", "datagrams lost on the way"],
  ["records_lost", "slow requests, garbage collections and holds lost in their process"],
  ["store.not_stored", "datagrams not written to the store"],
];

/** Data that was recorded differently from what was sent, or with less detail. */
const REMARKS: readonly (readonly [string, string])[] = [
  ["unsent", "reports that could not be sent, and became part of the next one"],
  ["events_left_out", "events left out, because only so many are kept of each minute"],
  ["clocks_off", "datagrams with a wrong time"],
];

function at(health: Health, path: string): unknown {
  return path
    .split(".")
    .reduce<unknown>(
      (inside, name) => (inside as Record<string, unknown> | null | undefined)?.[name],
      health,
    );
}

function counted(health: Health, what: typeof LOSSES): string[] {
  return what.flatMap(([path, words]) => {
    const value = at(health, path);
    return typeof value === "number" && value > 0 ? [`${count(value)} ${words}`] : [];
  });
}

export function remarks(health: Health): string[] {
  return counted(health, REMARKS);
}

export function losses(health: Health): string[] {
  const said = counted(health, LOSSES);
  const error = at(health, "store.error");
  if (typeof error === "string" && error) said.push(`store: ${error}`);
  return said;
}

export function HealthBar({ now }: { now: Answer<Now> }) {
  const said = now.data ? losses(now.data.recorder) : [];
  return (
    <>
      {now.error && (
        <p class="alert critical" role="alert">
          <strong>{now.error}</strong> {now.data ? "The page shows its last answer." : ""} Asking
          again every few seconds.
        </p>
      )}
      {said.length > 0 && (
        <p class="alert warning" role="status">
          <strong>Not everything was recorded:</strong> {said.join("; ")}.
        </p>
      )}
    </>
  );
}
