// A flame graph: calls as wide as what is waited during them, the outermost at the top. A click or
// Enter zooms, arrows go from call to call, Esc goes back. This file does not know where the calls
// are from.

import { useMemo, useRef, useState } from "preact/hooks";
import { fitted, placed, reached, search } from "../../../python/headway/profile/flame_calls.js";
import { type FlameCall, flameCalls, kindsOf, legendOf } from "../flame";
import { share } from "../format";
import type { CallRow } from "../model";
import { useWidth } from "./width";

const CALL = 20;
const BASELINE = 14;
const CHARACTER = 7.3;
/** Narrower calls are not drawn. */
const LEAST = 0.4;

interface Props {
  label: string;
  calls: CallRow[];
  /** The calls of another graph, whose files have the same colours here. */
  alike?: CallRow[] | undefined;
  /** What the widths are parts of; "all waiting" without it. */
  whole?: string;
  /** The text to search for. */
  wanted: string;
  stale: boolean;
}

export function FlameGraph({ label, calls: rows, alike, whole, wanted, stale }: Props) {
  const holder = useRef<HTMLDivElement>(null);
  const width = useWidth(holder);
  const [zoomed, zoom] = useState("");
  const [focused, setFocused] = useState("");
  const [pointed, setPointed] = useState("");
  const kinds = useMemo(() => kindsOf(rows, alike), [rows, alike]);
  const calls = useMemo(() => flameCalls(rows, kinds, whole), [rows, kinds, whole]);
  const legend = useMemo(() => legendOf(rows, kinds), [rows, kinds]);

  const root = calls[0];
  const target = calls.find((call) => call.path === zoomed) ?? root;
  const shown = target
    ? calls.flatMap((call) => {
        const place = placed(call, target, 0, width);
        return place && place.width >= LEAST ? [{ call, place }] : [];
      })
    : [];
  const seen = new Set(shown.map(({ call }) => call));
  const found = search(calls, wanted);
  const current = shown.find(({ call }) => call.path === focused)?.call ?? target;
  const told = shown.find(({ call }) => call.path === (pointed || focused))?.call;
  const rowsHigh = 1 + Math.max(0, ...shown.map(({ call }) => call.depth));

  const onKey = (event: KeyboardEvent, call: FlameCall) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") zoom("");
    else if (event.key === "Enter" || event.key === " ") zoom(call.path);
    else if (event.key.startsWith("Arrow")) {
      const next = reached(call, event.key, (each) => seen.has(each));
      if (next && seen.has(next)) {
        setFocused(next.path);
        const at = shown.findIndex((each) => each.call === next);
        const groups = holder.current?.querySelectorAll<SVGGElement>(".call");
        groups?.[at]?.focus();
      }
    } else return;
    event.preventDefault();
  };

  return (
    <div ref={holder} class={`flame ${stale ? "stale" : ""}`}>
      <div class="zoom">
        {target !== root && (
          <button type="button" onClick={() => zoom("")}>
            Zoom out
          </button>
        )}
        <span role="status">
          {wanted && root ? `found: ${share(found.waited / root.waited)}` : ""}
        </span>
      </div>
      <svg
        width={width}
        height={rowsHigh * CALL}
        role="group"
        aria-label={label}
        class={wanted ? "searched" : ""}
      >
        {shown.map(({ call, place }) => {
          const text = fitted(call.label, Math.floor((place.width - 6) / CHARACTER));
          const classes = [
            "call",
            place.outer ? "outer" : "",
            found.found.has(call) ? "found" : "",
          ];
          return (
            <g
              key={call.path}
              class={classes.join(" ")}
              role="button"
              aria-label={call.title}
              tabIndex={call === current ? 0 : -1}
              onClick={() => zoom(call.path)}
              onFocus={() => setFocused(call.path)}
              onPointerEnter={() => setPointed(call.path)}
              onPointerLeave={() => setPointed("")}
              onKeyDown={(event) => onKey(event, call)}
            >
              <title>{call.title}</title>
              <rect
                class={call.kind}
                x={place.x}
                y={call.depth * CALL}
                width={place.width}
                height={CALL}
              />
              {text && (
                <text x={place.x + 3} y={call.depth * CALL + BASELINE}>
                  {text}
                </text>
              )}
            </g>
          );
        })}
      </svg>
      <p class="pointed" aria-hidden="true">
        {told?.title.split("\n").join(" · ") ?? ""}
      </p>
      <ul class="files">
        {legend.map(({ kind, text }) => (
          <li key={kind}>
            <i class={`file ${kind}`} />
            {text}
          </li>
        ))}
      </ul>
    </div>
  );
}
