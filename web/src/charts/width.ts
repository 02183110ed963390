// The width of an element as the window changes.

import type { RefObject } from "preact";
import { useEffect, useState } from "preact/hooks";

/** In CSS pixels; 0 before the element is in the page. */
export function useWidth(holder: RefObject<HTMLElement | null>): number {
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const place = holder.current;
    if (!place) return;
    const observer = new ResizeObserver(() => setWidth(place.clientWidth));
    observer.observe(place);
    setWidth(place.clientWidth);
    return () => observer.disconnect();
  }, []);
  return width;
}
