// Questions to the recorder's API, asked once or again and again. A page that nobody sees asks nothing.

import { useEffect, useRef, useState } from "preact/hooks";
import type { ErrorAnswer } from "./model";

const RETRY_SECONDS = 5;
const LONGEST_WAIT_MS = 30_000;

export const NO_ANSWER = "The recorder does not answer.";

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
  /** One line; what was there before stays in `data`. */
  error: string | null;
  /** `data` answers an earlier question; the present one is under way. */
  stale: boolean;
}

/** Asks under one key, being told what was answered under it before. */
export type Asking<T> = (signal: AbortSignal, before: T | null) => Promise<T>;

/** The answer to a question, asked again `everyS` seconds after each answer, or once where that is null. */
export function useAnswer<T>(
  path: string,
  parameters: Parameters,
  everyS: number | null,
): Answer<T> {
  const address = question(path, parameters);
  return useAsking(address, everyS, (signal) => ask<T>(address, signal));
}

/** As `useAnswer`, where an answer may be made of what was answered before; `key` names the question. */
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
