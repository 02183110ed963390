// Numbers as people read them, always with their unit. This module formats all numbers shown.

export const NOTHING = "–";

type Maybe = number | null | undefined;

function known(value: Maybe): value is number {
  return value !== null && value !== undefined && Number.isFinite(value);
}

/** Three significant digits, thousands separated, no trailing zeros after the point. */
export function digits(value: number): string {
  const size = Math.abs(value);
  const decimals = size === 0 || size >= 99.95 ? 0 : size >= 9.995 ? 1 : size >= 0.9995 ? 2 : 3;
  const text = value.toFixed(decimals);
  const [whole = "", fraction = ""] = text.split(".");
  const grouped = whole.replace(/\B(?=(\d{3})+$)/g, ",");
  const kept = fraction.replace(/0+$/, "");
  return kept ? `${grouped}.${kept}` : grouped;
}

function scaled(value: number, steps: readonly (readonly [number, string])[]): string {
  const size = Math.abs(value);
  for (const [scale, unit] of steps) {
    if (size >= scale * 0.9995) return `${digits(value / scale)} ${unit}`;
  }
  const [scale, unit] = steps[steps.length - 1] ?? [1, ""];
  return `${digits(value / scale)} ${unit}`;
}

/** A duration: "1.23 ms", "45 µs", "12.5 s". */
export function seconds(value: Maybe): string {
  if (!known(value)) return NOTHING;
  if (value === 0) return "0 s";
  return scaled(value, [
    [1, "s"],
    [1e-3, "ms"],
    [1e-6, "µs"],
  ]);
}

/** A long time: "45 s", "12 min 5 s", "3 h 20 min", "4 d 2 h". */
export function span(value: Maybe): string {
  if (!known(value)) return NOTHING;
  const whole = Math.round(Math.abs(value));
  if (whole < 60) return `${whole} s`;
  const steps: [number, string][] = [
    [86_400, "d"],
    [3_600, "h"],
    [60, "min"],
    [1, "s"],
  ];
  const first = steps.findIndex(([size]) => whole >= size);
  return steps
    .slice(first, first + 2)
    .map(([size, unit], index) => {
      const inside = index === 0 ? whole : whole % (steps[first]?.[0] ?? 1);
      return [Math.floor(inside / size), unit] as const;
    })
    .filter(([amount]) => amount > 0)
    .map(([amount, unit]) => `${amount} ${unit}`)
    .join(" ");
}

/** A count, in full: "12,345". */
export function count(value: Maybe): string {
  return known(value) ? Math.round(value).toLocaleString("en-US") : NOTHING;
}

/** A count with its noun: "1 wait", "12,345 waits". */
export function counted(value: number, noun: string): string {
  return `${count(value)} ${noun}${value === 1 ? "" : noun.endsWith("s") ? "es" : "s"}`;
}

/** "37.2k", "1.2M": for axes and tiles, which have no room for a full count. */
export function short(value: Maybe): string {
  if (!known(value)) return NOTHING;
  return scaled(value, [
    [1e9, "G"],
    [1e6, "M"],
    [1e3, "k"],
    [1, ""],
  ])
    .replace(/ ([GMk])$/, "$1")
    .trimEnd();
}

/** A rate: "1,234 /s". */
export function perSecond(value: Maybe): string {
  return known(value) ? `${digits(value)} /s` : NOTHING;
}

/** Requests per minute: "37.2k rpm". */
export function perMinute(value: Maybe): string {
  return known(value) ? `${short(value)} rpm` : NOTHING;
}

/** CPU usage in fully busy cores: "1.85 cores". */
export function cores(value: Maybe): string {
  if (!known(value)) return NOTHING;
  // The kernel's CPU times of an interval are accurate to hundredths at best.
  const text = digits(Math.round(value * 100) / 100);
  return `${text} ${text === "1" ? "core" : "cores"}`;
}

export function bytes(value: Maybe): string {
  if (!known(value)) return NOTHING;
  if (value === 0) return "0 B";
  return scaled(value, [
    [2 ** 40, "TiB"],
    [2 ** 30, "GiB"],
    [2 ** 20, "MiB"],
    [2 ** 10, "KiB"],
    [1, "B"],
  ]);
}

export function bytesPerSecond(value: Maybe): string {
  return known(value) ? `${bytes(value)}/s` : NOTHING;
}

/** A share of 1, in percent: "41.2 %". A small share is never shown as zero. */
export function share(value: Maybe): string {
  if (!known(value)) return NOTHING;
  const percent = value * 100;
  if (percent > 0 && percent < 0.05) return "< 0.1 %";
  return `${percent.toFixed(Math.abs(percent) >= 99.95 || percent === 0 ? 0 : 1)} %`;
}

/** A value as a multiple of the first one: "×1.13". */
export function ratio(value: Maybe, first: Maybe): string {
  if (!known(value) || !known(first) || first === 0) return NOTHING;
  return `×${digits(value / first)}`;
}

/** A value of a kind that only the server knows, formatted by its unit. */
export function inUnit(value: number | string | null, unit: string): string {
  if (value === null) return NOTHING;
  if (typeof value === "string") return unit ? `${value} ${unit}` : value;
  switch (unit) {
    case "s":
      return seconds(value);
    case "share":
      return share(value);
    case "cores":
      return cores(value);
    case "bytes":
    case "B":
      return bytes(value);
    case "/s":
    case "per s":
      return perSecond(value);
    case "":
      return digits(value);
    default:
      return `${digits(value)} ${unit}`;
  }
}

const two = (value: number) => String(value).padStart(2, "0");

function clockOf(date: Date): string {
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

function dayOf(date: Date): string {
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
}

/** The local time of day: "14:03:07". */
export function clock(time: Maybe): string {
  return known(time) ? clockOf(new Date(time * 1000)) : NOTHING;
}

/** The local date and time: "2026-11-22 14:03:07". */
export function moment(time: Maybe): string {
  if (!known(time)) return NOTHING;
  const date = new Date(time * 1000);
  return `${dayOf(date)} ${clockOf(date)}`;
}

/** Two moments; the date appears once if it is the same. */
export function interval(from: number, to: number): string {
  const [first, last] = [moment(from), moment(to)];
  return `${first} – ${first.slice(0, 10) === last.slice(0, 10) ? last.slice(11) : last}`;
}

/** A label of a time axis whose ticks are `step` seconds apart. */
export function timeTick(time: number, step: number): string {
  const date = new Date(time * 1000);
  const midnight = date.getHours() === 0 && date.getMinutes() === 0 && date.getSeconds() === 0;
  if (step >= 86_400 || (midnight && step >= 60)) return dayOf(date).slice(5);
  return step >= 60 ? clockOf(date).slice(0, 5) : clockOf(date);
}

/** Values that may differ between processes: "5 ms", or "2 ms, 5 ms". */
export function varying<T>(value: T | T[] | null | undefined, one: (value: T) => string): string {
  if (value === null || value === undefined) return NOTHING;
  return Array.isArray(value) ? value.map(one).join(", ") : one(value);
}

/** mod_wsgi's default group, Apache's embedded mode, has the empty name. */
export function groupName(name: string): string {
  return name === "" ? "(default group)" : name;
}
