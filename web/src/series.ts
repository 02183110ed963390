// Values over time that grow: a live chart requests only new steps, since a summary of each step of
// a range is expensive to make and to send.

import type { Address } from "./address";
import { selectionParameters } from "./address";
import { type Answer, ask, type Parameters, question, useAsking } from "./answers";
import type { Series } from "./model";
import { isLive, parameters, refreshSeconds, stepOf } from "./range";

/** Steps that are requested again: a tick may arrive late, and the last step was not over. */
const AGAIN = 3;

/** The parameters for the whole steps from the one that contains `from` to the one with `to`. */
export function aligned(from: number, to: number, step: number): [string, string][] {
  const first = Math.floor(from / step);
  const last = Math.max(first + 1, Math.ceil(to / step));
  return [
    ["from", String(first * step)],
    ["to", String(last * step)],
    ["points", String(last - first)],
  ];
}

/** `before` extended by `news`, up to `to`; null if their steps differ and the whole series must
 * be requested again. */
export function joined(before: Series, news: Series, last: number, to: number): Series | null {
  const since = news.points[0]?.time;
  if (news.step !== before.step || since === undefined) return null;
  // A series shorter than the range begins with the recorder's life.
  const from = Math.max(to - last, before.from);
  const markers = [...before.markers.filter(({ time }) => time < news.from), ...news.markers];
  return {
    ...news,
    from,
    to,
    points: [...before.points.filter(({ time }) => time < since), ...news.points].filter(
      ({ time }) => time + news.step > from,
    ),
    markers: markers.filter(({ time }) => time >= from),
  };
}

export function useSeries(address: Address): Answer<Series> {
  const { range } = address;
  const selection = selectionParameters(address.selection);
  const every = refreshSeconds(range);
  const length = isLive(range) ? range.last : range.to - range.from;
  const points = Math.max(1, Math.round(length / stepOf(length)));
  const whole: Parameters = [...parameters(range), ...selection, ["points", String(points)]];
  const all = question("series", whole);

  return useAsking<Series>(all, every && Math.max(2, every), async (signal, before) => {
    const latest = before?.points.at(-AGAIN)?.time;
    const clock = before && clocks.get(before);
    if (before && isLive(range) && latest !== undefined && clock != null) {
      const now = clock + performance.now() / 1000;
      // The steps of a series that began short are those of its first length.
      if (now - latest < range.last / 2 && before.points.length < 2 * points) {
        const address = question("series", [...aligned(latest, now, before.step), ...selection]);
        const news = joined(before, await ask<Series>(address, signal), range.last, now);
        if (news) return timed(news, clock);
      }
    }
    const series = await ask<Series>(all, signal);
    return timed(series, series.to - performance.now() / 1000);
  });
}

/** How far the recorder's clock is ahead of this page's, which began at 0, for each live answer. */
const clocks = new WeakMap<Series, number>();

function timed(series: Series, clock: number): Series {
  clocks.set(series, clock);
  return series;
}
