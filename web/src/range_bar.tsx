// Which span of time is shown: presets that move on with time, moments typed, steps and zoom.

import { useEffect, useState } from "preact/hooks";
import { type Address, go } from "./address";
import { addRow } from "./comparison";
import { moment } from "./format";
import { moveRange, pauseOrResume, zoomRange } from "./navigation";
import { close, Popover } from "./popover";
import { describe as described, isLive, moments, PRESETS, parseMoment, type Range } from "./range";

export function RangeBar({ address }: { address: Address }) {
  const { range } = address;
  const live = isLive(range);
  return (
    <section class="bar" aria-label="Time range">
      <div class="presets" role="group" aria-label="Presets">
        {PRESETS.map(([last, label]) => (
          <button
            key={last}
            type="button"
            aria-pressed={live && range.last === last}
            onClick={() => go({ range: { last } })}
          >
            {label}
          </button>
        ))}
      </div>
      <div class="steps" role="group" aria-label="Move and zoom">
        <Step label="Earlier ([)" sign="‹" act={() => moveRange(-0.5)} />
        <Step label="Later (])" sign="›" act={() => moveRange(0.5)} disabled={live} />
        <Step label="Shorter (+)" sign="+" act={() => zoomRange(0.5)} />
        <Step label="Longer (-)" sign="−" act={() => zoomRange(2)} />
      </div>
      <Typed range={range} />
      <button
        type="button"
        class={`live ${live ? "on" : ""}`}
        aria-pressed={live}
        onClick={pauseOrResume}
        title={live ? "Pause the live view (p)" : "Continue live (p)"}
      >
        <i aria-hidden="true" />
        {live ? "Live" : "Paused"}
      </button>
      <button
        type="button"
        onClick={() => addRow()}
        title="Add this range and selection to the comparison (c)"
      >
        Add to comparison
      </button>
    </section>
  );
}

function Step(props: { label: string; sign: string; act: () => void; disabled?: boolean }) {
  return (
    <button
      type="button"
      title={props.label}
      onClick={props.act}
      disabled={props.disabled ?? false}
    >
      <span aria-hidden="true">{props.sign}</span>
      <span class="sr">{props.label}</span>
    </button>
  );
}

function written(range: Range): { from: string; to: string } {
  if (isLive(range)) return { from: `-${range.last}s`, to: "now" };
  return { from: moment(range.from), to: moment(range.to) };
}

function Typed({ range }: { range: Range }) {
  const [text, setText] = useState(written(range));
  const [wrong, setWrong] = useState("");
  useEffect(() => {
    setText(written(range));
    setWrong("");
  }, [JSON.stringify(range)]);

  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const now = Date.now() / 1000;
    const from = parseMoment(text.from, now);
    const to = parseMoment(text.to, now);
    if (from === null || to === null) {
      const which = from === null ? text.from : text.to;
      setWrong(`"${which}" is not a time; allowed: 14:30, 2026-11-22 14:30, -2h, now`);
    } else if (to <= from) setWrong("The end has to be after the beginning");
    else {
      const relative = /^-/.test(text.from.trim()) && /^(now)?$/i.test(text.to.trim());
      go({ range: relative ? { last: Math.round(to - from) } : { from, to } });
      close(event.currentTarget as Element);
    }
  };
  return (
    <Popover class="typed" label={described(range)}>
      <form class="popover" onSubmit={submit}>
        <label>
          From
          <input
            value={text.from}
            onInput={(event) => setText({ ...text, from: event.currentTarget.value })}
            aria-describedby="moments"
            autocomplete="off"
          />
        </label>
        <label>
          To
          <input
            value={text.to}
            onInput={(event) => setText({ ...text, to: event.currentTarget.value })}
            aria-describedby="moments"
            autocomplete="off"
          />
        </label>
        <p id="moments" class="note">
          14:30, 2026-11-22 14:30, -2h, now
        </p>
        {wrong && (
          <p class="wrong" role="alert">
            {wrong}
          </p>
        )}
        <button type="submit" class="primary">
          Show
        </button>
        <p class="note">
          Now shown: {moment(moments(range, Date.now() / 1000).from)} to{" "}
          {moment(moments(range, Date.now() / 1000).to)}
        </p>
      </form>
    </Popover>
  );
}
