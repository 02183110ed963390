// A canvas as wide as its container and as sharp as the screen, redrawn when its data, its size or
// the colours change. Pointer and arrow keys move one cursor over it. It does not know what it
// shows.

import type { Ref } from "preact";
import { useEffect, useImperativeHandle, useRef, useState } from "preact/hooks";
import { useTheme } from "../theme";
import { useWidth } from "./width";

export interface Point {
  x: number;
  y: number;
}

interface Props {
  height: number;
  label: string;
  /** The cursor's position from 0 to `last`, and a text for that position. */
  cursor: { at: number; last: number; text: string };
  draw: (context: CanvasRenderingContext2D, width: number, height: number) => void;
  /** The pointer's position in CSS pixels; null when it left. */
  onPoint?: (at: Point | null, width: number) => void;
  /** Arrow keys, as steps to the right and down. */
  onStep?: (right: number, down: number) => void;
  onPick?: () => void;
  /** Dragging, from x to x in CSS pixels. */
  onDrag?: (from: number, to: number, width: number) => void;
  stale?: boolean;
  canvas?: Ref<HTMLCanvasElement | null>;
}

const STEPS: Record<string, [number, number]> = {
  ArrowLeft: [-1, 0],
  ArrowRight: [1, 0],
  ArrowUp: [0, -1],
  ArrowDown: [0, 1],
  PageUp: [-10, 0],
  PageDown: [10, 0],
  Home: [-1e6, 0],
  End: [1e6, 0],
};

export function Drawing(props: Props) {
  const { height, label, cursor, draw } = props;
  const holder = useRef<HTMLDivElement>(null);
  const element = useRef<HTMLCanvasElement>(null);
  const width = useWidth(holder);
  const [drag, setDrag] = useState<{ from: number; to: number } | null>(null);
  const theme = useTheme();
  useImperativeHandle(props.canvas ?? null, () => element.current, []);

  useEffect(() => {
    const canvas = element.current;
    const context = canvas?.getContext("2d");
    if (!canvas || !context || !width || theme < 0) return;
    const ratio = devicePixelRatio || 1;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    draw(context, width, height);
  }, [draw, width, height, theme]);

  const at = (event: PointerEvent): Point => {
    const box = element.current?.getBoundingClientRect();
    return { x: event.clientX - (box?.left ?? 0), y: event.clientY - (box?.top ?? 0) };
  };
  return (
    <div ref={holder} class={`drawing ${props.stale ? "stale" : ""}`}>
      <canvas
        ref={element}
        style={{ height: `${height}px` }}
        tabIndex={0}
        role="slider"
        aria-label={label}
        aria-valuemin={0}
        aria-valuemax={Math.max(0, cursor.last)}
        aria-valuenow={Math.max(0, cursor.at)}
        aria-valuetext={cursor.text}
        onPointerMove={(event) => {
          props.onPoint?.(at(event), width);
          if (drag) setDrag({ from: drag.from, to: at(event).x });
        }}
        onPointerLeave={() => props.onPoint?.(null, width)}
        onPointerDown={(event) => {
          if (!props.onDrag || event.button !== 0) return;
          element.current?.setPointerCapture(event.pointerId);
          setDrag({ from: at(event).x, to: at(event).x });
        }}
        onPointerUp={() => {
          if (drag && Math.abs(drag.to - drag.from) > 4) {
            props.onDrag?.(Math.min(drag.from, drag.to), Math.max(drag.from, drag.to), width);
          } else props.onPick?.();
          setDrag(null);
        }}
        onBlur={() => props.onPoint?.(null, width)}
        onKeyDown={(event) => {
          if (event.ctrlKey || event.metaKey || event.altKey) return;
          const step = STEPS[event.key];
          if (step && props.onStep) {
            event.preventDefault();
            props.onStep(...step);
          } else if (event.key === "Enter" && props.onPick) props.onPick();
        }}
      />
      {drag && Math.abs(drag.to - drag.from) > 4 && (
        <div
          class="dragged"
          style={{
            left: `${Math.min(drag.from, drag.to)}px`,
            width: `${Math.abs(drag.to - drag.from)}px`,
          }}
        />
      )}
    </div>
  );
}

/** A text cut to `width`, so that a long name does not run into the picture. */
export function fitted(context: CanvasRenderingContext2D, text: string, width: number): string {
  if (context.measureText(text).width <= width) return text;
  let end = Math.min(text.length, 80);
  while (end > 1 && context.measureText(`${text.slice(0, end)}…`).width > width) end--;
  return `${text.slice(0, end)}…`;
}
