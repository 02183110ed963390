// The list of keys, and the words that the pages use.

import { useEffect, useRef, useState } from "preact/hooks";
import { areShortcutsOn, KEYS, turnShortcuts } from "./keyboard";

const WORDS: readonly (readonly [string, string])[] = [
  ["take", "A thread gets the GIL. A contended take is one that had to wait for it."],
  [
    "wait of a take",
    "From when a thread begins to wait for the GIL to when it has it. Exact, measured at each take, the application's own code included.",
  ],
  ["GIL wait of a request", "All waits of one request together."],
  ["hold", "From a take to the drop that ends it."],
  [
    "held, handoff, idle",
    "The three parts of a GIL's time: a thread has it; it is free while a thread waits for it; it is free and no thread waits for it.",
  ],
  [
    "switch interval",
    "After this time a waiting thread requests that the holder drop the GIL (sys.setswitchinterval(), 5 ms by default).",
  ],
  [
    "convoy",
    "Threads that need the GIL for a short time wait whole switch intervals behind a CPU-bound thread: waits gather just above the multiples of the interval.",
  ],
  [
    "wait for a lock or event",
    "Without a GIL: a thread waits for a lock, for an object that another thread uses, for a queue or for another thread's end.",
  ],
  [
    "event loop",
    "A thread that waits for events on one epoll descriptor again and again, as asyncio's. An iteration lasts from the end of one wait to the beginning of the next, and is late from 20 ms on.",
  ],
  ["busy", "The share of worker threads that have a request."],
  ["cores", "CPU time over wall time: 1.5 cores is one and a half cores busy all the time."],
  [
    "percentile",
    "Always of all requests or takes of the span, never a mean of percentiles. Interpolated in histograms whose buckets are at most 6.25 % wide; the maximum is exact.",
  ],
];

export function Help({ onClose }: { onClose: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [shortcuts, setShortcuts] = useState(areShortcutsOn());
  useEffect(() => {
    const element = dialog.current;
    element?.showModal();
    return () => element?.close();
  }, []);
  return (
    <dialog ref={dialog} class="help" aria-labelledby="help-title" onClose={onClose}>
      <header>
        <h2 id="help-title">Keys and words</h2>
        <button type="button" onClick={onClose}>
          Close
        </button>
      </header>
      <label class="inline">
        <input
          type="checkbox"
          checked={shortcuts}
          onChange={(event) => {
            turnShortcuts(event.currentTarget.checked);
            setShortcuts(event.currentTarget.checked);
          }}
        />{" "}
        Single keys act as shortcuts. Arrows and Esc always work.
      </label>
      <dl class="keys">
        {KEYS.map(([keys, what]) => (
          <div key={keys}>
            <dt>
              <kbd>{keys}</kbd>
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
      <dl class="words">
        {WORDS.map(([word, what]) => (
          <div key={word}>
            <dt>{word}</dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
      <p>
        Drag over a chart to zoom in; the browser's Back button undoes it. The address of the page
        contains the range and the selection, so it can be shared.
      </p>
    </dialog>
  );
}
