// Histograms of durations prepared for drawing: the log-linear scale of headway_measure, whose
// buckets are sixteenths of a power of two from 512 ns on, rebuilt from the API's upper bounds.

import type { Histogram } from "./model";

const STEPS_PER_POWER = 16;
const LOWEST_NS = 512;

export interface Bin {
  /** Seconds. */
  low: number;
  high: number;
  count: number;
}

/** The lower bound of the bucket that ends at `high` seconds. */
export function lowerBound(high: number): number {
  const highNs = Math.round(high * 1e9);
  if (highNs <= LOWEST_NS) return 0;
  const power = 2 ** Math.floor(Math.log2(highNs - 1));
  return (highNs - power / STEPS_PER_POWER) / 1e9;
}

/** The bars per power of two: wide ones for few values, which would look like a comb. */
export function barsPerPower(count: number): number {
  return count >= 20_000 ? 16 : count >= 2_000 ? 8 : 4;
}

/**
 * A histogram as bars without gaps from `from` to `to` seconds, `perPower` per power of two. A
 * bar's edges are edges of buckets, so no bucket is split.
 */
export function bins(histogram: Histogram, from: number, to: number, perPower: number): Bin[] {
  const made: Bin[] = [];
  const index = new Map<number, Bin>();
  const firstPower = Math.floor(Math.log2(Math.max(from * 1e9, LOWEST_NS)));
  for (let power = firstPower; ; power++) {
    const base = 2 ** power;
    if (base / 1e9 >= to) break;
    for (let step = 0; step < perPower; step++) {
      const low = (base + (base * step) / perPower) / 1e9;
      const bin = { low, high: (base + (base * (step + 1)) / perPower) / 1e9, count: 0 };
      made.push(bin);
      index.set(power * perPower + step, bin);
    }
  }
  for (const [high, count] of histogram.buckets) {
    const lowNs = Math.max(lowerBound(high) * 1e9, 2 ** firstPower);
    const power = Math.floor(Math.log2(lowNs * (1 + 1e-12)));
    const step = Math.floor((lowNs / 2 ** power - 1) * perPower + 1e-9);
    const bin = index.get(power * perPower + step) ?? made[made.length - 1];
    if (bin) bin.count += count;
  }
  return made;
}

/** The range of durations that the histograms cover, in whole powers of ten from 1 µs. */
export function extent(histograms: readonly (Histogram | null)[]): { from: number; to: number } {
  const longest = Math.max(1e-3, ...histograms.map((histogram) => histogram?.max ?? 0));
  return { from: 1e-6, to: 10 ** Math.ceil(Math.log10(longest) - 1e-9) };
}

/** A histogram as `bars` of equal width from 0 to `to` seconds; splits buckets by length. */
export function evenBins(histogram: Histogram, to: number, bars: number): Bin[] {
  const width = to / bars;
  const made = Array.from({ length: bars }, (_, index) => ({
    low: width * index,
    high: width * (index + 1),
    count: 0,
  }));
  for (const [high, count] of histogram.buckets) {
    const low = lowerBound(high);
    const first = Math.min(bars - 1, Math.floor(low / width));
    const last = Math.min(bars - 1, Math.floor((high - 1e-12) / width));
    for (let index = first; index <= last; index++) {
      const bin = made[index];
      if (!bin) continue;
      // The last bar includes the durations beyond the axis.
      const end = index === bars - 1 ? high : Math.min(high, bin.high);
      bin.count += (count * (end - Math.max(low, bin.low))) / (high - low);
    }
  }
  return made;
}

/**
 * The heights of bars on a logarithmic axis: their weight divided by their width there. A power of
 * two is cut into parts of equal length, of which the first is drawn twice as wide as the last.
 */
export function densities(
  made: readonly Bin[],
  shares: readonly number[],
  perPower: number,
): number[] {
  return made.map(({ low, high }, index) => {
    const room = Math.log2(high / low) * perPower;
    return (shares[index] ?? 0) / room;
  });
}

/** The share of `histogram` in each bin: of its count, or of the time that it sums up. */
export function weights(made: readonly Bin[], by: "number" | "time"): number[] {
  const sizes = made.map(({ low, high, count }) =>
    by === "number" ? count : (count * (low + high)) / 2,
  );
  const total = sizes.reduce((sum, size) => sum + size, 0);
  return sizes.map((size) => (total ? size / total : 0));
}

/** The share of a histogram above `limit` seconds; a bucket across the limit counts by length. */
export function shareAbove(histogram: Histogram, limit: number): number | null {
  if (!histogram.count) return null;
  let above = 0;
  for (const [high, count] of histogram.buckets) {
    const low = lowerBound(high);
    if (low >= limit) above += count;
    else if (high > limit) above += (count * (high - limit)) / (high - low);
  }
  return above / histogram.count;
}

/** Ticks of a logarithmic axis of durations: 1, 10, 100 of each unit; 2 and 5 if there is room. */
export function logTicks(from: number, to: number, room: number): number[] {
  const decades = Math.log10(to / from);
  const steps = room / decades >= 3 ? [1, 2, 5] : [1];
  const ticks: number[] = [];
  for (let power = Math.floor(Math.log10(from) + 1e-9); 10 ** power <= to * 1.001; power++) {
    for (const step of steps) {
      const tick = Number(`${step}e${power}`);
      if (tick >= from * 0.999 && tick <= to * 1.001) ticks.push(tick);
    }
  }
  return ticks;
}

/** Round ticks of a linear axis from 0 to at least `top`, `about` of them. */
export function linearTicks(top: number, about: number): number[] {
  if (!(top > 0)) return [0, 1];
  const raw = top / Math.max(1, about);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((size) => size * power).find((size) => size >= raw * 0.999);
  const ticks: number[] = [];
  const chosen = step ?? raw;
  for (let index = 0; index * chosen < top + chosen * 0.999; index++) {
    ticks.push(Number((index * chosen).toPrecision(12)));
  }
  return ticks;
}
