// Questions to the recorder's API, asked once or again and again. A page that nobody sees asks nothing.

import { useEffect, useRef, useState } from "preact/hooks";
import type { ErrorAnswer } from "./model";

const RETRY_SECONDS = 5;
const LONGEST_WAIT_MS = 30_000;

export type Parameters = readonly (readonly [string, string])[];

/** The address of a question, relative to the page's own, so that a proxy's prefix stays. */
export function question(path: string, parameters: Parameters): string {
  const query = new URLSearchParams(parameters.map(([name, value]) => [name, value])).toString();
  return `api/v1/${path}${query ? `?${query}` : ""}`;
}

/** Asks; throws an Error whose message is one line that can be shown. */
export async function ask<T>(address: string, signal: AbortSignal): Promise<T> {
  let response: Response;
  try {
    response = await fetch(address, {
      signal: AbortSignal.any([signal, AbortSignal.timeout(LONGEST_WAIT_MS)]),
      headers: { accept: "application/json" },
      cache: "no-store",
    });
  } catch (error) {
    if (signal.aborted) throw error;
    throw new Error("The recorder does not answer.");
  }
  const answer: unknown = await response.json().catch(() => null);
  if (!response.ok) {
    const said = (answer as ErrorAnswer | null)?.error;
    throw new Error(said ?? `The recorder answered ${response.status}.`);
  }
  if (answer === null) throw new Error("The recorder's answer is not JSON.");
  return answer as T;
}

export interface Answer<T> {
  data: T | null;
  /** One line; what was there before stays in `data`. */
  error: string | null;
  /** `data` answers an earlier question; the present one is under way. */
  stale: boolean;
}

/** The answer to a question, asked again `everyS` seconds after each answer, or once where that is null. */
export function useAnswer<T>(
  path: string,
  parameters: Parameters,
  everyS: number | null,
): Answer<T> {
  const address = question(path, parameters);
  const [answer, set] = useState<Answer<T> & { address: string }>({
    data: null,
    error: null,
    stale: true,
    address: "",
  });
  const period = useRef(everyS);
  period.current = everyS;

  useEffect(() => {
    const controller = new AbortController();
    let timer: number | undefined;
    let asking = false;

    const turn = async () => {
      clearTimeout(timer);
      if (asking || document.hidden) return;
      asking = true;
      let next = period.current;
      try {
        const data = await ask<T>(address, controller.signal);
        set({ data, error: null, stale: false, address });
      } catch (error) {
        if (controller.signal.aborted) return;
        const message = error instanceof Error ? error.message : String(error);
        set((before) => ({ ...before, error: message, stale: before.address !== address }));
        next = Math.max(next ?? 0, RETRY_SECONDS);
      } finally {
        asking = false;
      }
      if (next !== null) timer = setTimeout(turn, next * 1000);
    };
    const seen = () => {
      if (!document.hidden) void turn();
    };
    document.addEventListener("visibilitychange", seen);
    void turn();
    return () => {
      controller.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", seen);
    };
  }, [address, everyS !== null]);

  return { data: answer.data, error: answer.error, stale: answer.address !== address };
}
