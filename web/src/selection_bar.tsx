// Which processes are shown: hosts, process groups and pids, and which recording.

import { type Address, EVERYTHING, go, type Selection } from "./address";
import { groupName } from "./format";
import type { Now } from "./model";
import { Popover } from "./popover";

type Part = "hosts" | "groups" | "pids";

const unique = (values: string[]) => [...new Set(values)].sort();

function choices(now: Now | null): Record<Part, string[]> {
  return {
    hosts: unique(now?.processes.map(({ host }) => host) ?? []),
    groups: unique(now?.processes.map(({ group }) => group) ?? []),
    pids: unique(now?.processes.map(({ pid }) => String(pid)) ?? []),
  };
}

export function recordings(now: Now | null): string[] {
  const named = now?.recorder.recordings;
  return Array.isArray(named) ? named.filter((name) => typeof name === "string") : [];
}

const LABELS: Record<Part, string> = { hosts: "Hosts", groups: "Groups", pids: "Processes" };

export function SelectionBar({ address, now }: { address: Address; now: Now | null }) {
  const { selection } = address;
  const all = choices(now);
  const set = (change: Partial<Selection>) => go({ selection: { ...selection, ...change } });
  const named = recordings(now);
  const any = selection.hosts.length + selection.groups.length + selection.pids.length > 0;
  return (
    <section class="bar selection" aria-label="Selection">
      {(["hosts", "groups", "pids"] as const).map((part) => (
        <Choice
          key={part}
          label={LABELS[part]}
          all={unique([...all[part], ...selection[part]])}
          picked={selection[part]}
          name={part === "groups" ? groupName : String}
          onPick={(picked) => set({ [part]: picked })}
        />
      ))}
      {(named.length > 0 || selection.recording) && (
        <label class="inline">
          Recording{" "}
          <select
            value={selection.recording}
            onChange={(event) => set({ recording: event.currentTarget.value })}
          >
            <option value="">this recorder</option>
            {unique([...named, ...(selection.recording ? [selection.recording] : [])]).map(
              (name) => (
                <option key={name} value={name}>
                  {name}
                </option>
              ),
            )}
          </select>
        </label>
      )}
      {any && (
        <button
          type="button"
          class="quiet"
          onClick={() => go({ selection: { ...EVERYTHING, recording: selection.recording } })}
        >
          Show all
        </button>
      )}
    </section>
  );
}

function Choice(props: {
  label: string;
  all: string[];
  picked: string[];
  name: (value: string) => string;
  onPick: (picked: string[]) => void;
}) {
  const { label, all, picked } = props;
  const shown =
    picked.length === 0
      ? "all"
      : picked.length <= 2
        ? picked.map(props.name).join(", ")
        : picked.length;
  return (
    <Popover
      class={`choice ${picked.length ? "some" : ""}`}
      label={
        <>
          {label}: <strong>{shown}</strong>
        </>
      }
    >
      <fieldset class="popover">
        <legend class="sr">{label}</legend>
        {all.length === 0 && <p class="note">None has been seen.</p>}
        {all.map((value) => (
          <label key={value} class="check">
            <input
              type="checkbox"
              checked={picked.includes(value)}
              onChange={(event) =>
                props.onPick(
                  event.currentTarget.checked
                    ? [...picked, value]
                    : picked.filter((other) => other !== value),
                )
              }
            />
            <span>{props.name(value)}</span>
          </label>
        ))}
      </fieldset>
    </Popover>
  );
}
