// What the recorder could not keep, on every page while it is not zero; and that it does not answer.

import type { Answer } from "./answers";
import { count } from "./format";
import type { Health, Now } from "./model";

/** Losses by their name in `recorder`, and what they are called. */
const LOSSES: readonly (readonly [string, string])[] = [
  ["malformed", "malformed datagrams dropped"],
  ["refused", "datagrams refused"],
  ["sequence_gaps", "datagrams lost on the way"],
  ["lost", "datagrams lost on the way"],
  ["unsent", "ticks sent late by their process"],
  ["records_lost", "slow, GC or hold records lost"],
  ["store_lost", "records not written to the store"],
];

export function losses(health: Health): string[] {
  const said = LOSSES.flatMap(([name, what]) => {
    const value = health[name];
    return typeof value === "number" && value > 0 ? [`${count(value)} ${what}`] : [];
  });
  const error = health.store_error;
  if (typeof error === "string" && error) said.push(`the store: ${error}`);
  return said;
}

export function HealthBar({ now }: { now: Answer<Now> }) {
  const said = now.data ? losses(now.data.recorder) : [];
  return (
    <>
      {now.error && (
        <p class="alert critical" role="alert">
          <strong>{now.error}</strong> {now.data ? "What is shown is what it said last." : ""}{" "}
          Asking again every few seconds.
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
