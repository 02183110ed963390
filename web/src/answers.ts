// Requests to the recorder's API, made once or repeatedly. A hidden page makes none.

import { useEffect, useRef, useState } from "preact/hooks";
import type { ErrorAnswer } from "./model";

const RETRY_SECONDS = 5;
const LONGEST_WAIT_MS = 30_000;

export const NO_ANSWER = "The recorder does not answer.";

export type Parameters = readonly (readonly [string, string])[];

/** The URL of a request, relative to the page's own, so that a proxy's prefix is kept. */
export function question(path: string, parameters: Parameters): string {
  const query = new URLSearchParams(parameters.map(([name, value]) => [name, value])).toString();
  return `api/v1/${path}${query ? `?${query}` : ""}`;
}

/** Makes a request; throws an Error whose message is one line that can be shown. */
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
    throw new Error(NO_ANSWER);
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
  /** One line; `data` keeps the previous answer. */
  error: string | null;
  /** `data` answers an earlier request; the present one is in progress. */
  stale: boolean;
}

/** Makes the requests of one key; `before` is the previous answer under that key. */
export type Asking<T> = (signal: AbortSignal, before: T | null) => Promise<T>;

/** The answer to a request, repeated `everyS` seconds after each answer, or made once if null. */
export function useAnswer<T>(
  path: string,
  parameters: Parameters,
  everyS: number | null,
): Answer<T> {
  const address = question(path, parameters);
  return useAsking(address, everyS, (signal) => ask<T>(address, signal));
}

/** As `useAnswer`, for answers that build on the previous one; `key` identifies the request. */
export function useAsking<T>(key: string, everyS: number | null, asking: Asking<T>): Answer<T> {
  const [answer, set] = useState<{ data: T | null; error: string | null; key: string }>({
    data: null,
    error: null,
    key: "",
  });
  const latest = useRef({ everyS, asking });
  latest.current = { everyS, asking };

  useEffect(() => {
    const controller = new AbortController();
    let timer: number | undefined;
    let isAsking = false;
    let before: T | null = null;

    const turn = async () => {
      clearTimeout(timer);
      if (isAsking || document.hidden) return;
      isAsking = true;
      let next = latest.current.everyS;
      try {
        const data = await latest.current.asking(controller.signal, before);
        if (controller.signal.aborted) return;
        before = data;
        set({ data, error: null, key });
      } catch (error) {
        if (controller.signal.aborted) return;
        const message = error instanceof Error ? error.message : String(error);
        set((last) => ({ ...last, error: message }));
        next = Math.max(next ?? 0, RETRY_SECONDS);
      } finally {
        isAsking = false;
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
  }, [key, everyS !== null]);

  return { data: answer.data, error: answer.error, stale: answer.key !== key };
}
