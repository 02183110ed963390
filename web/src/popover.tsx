// A panel that opens under a button and closes with Escape or a click elsewhere.

import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

interface Props {
  class: string;
  label: ComponentChildren;
  children: ComponentChildren;
}

export function Popover(props: Props) {
  const details = useRef<HTMLDetailsElement>(null);
  useEffect(() => {
    const onPointerDown = (event: PointerEvent) => {
      const element = details.current;
      if (element?.open && !element.contains(event.target as Node)) element.open = false;
    };
    addEventListener("pointerdown", onPointerDown);
    return () => removeEventListener("pointerdown", onPointerDown);
  }, []);
  return (
    <details
      ref={details}
      class={props.class}
      onKeyDown={(event) => {
        if (event.key === "Escape") close(event.currentTarget);
      }}
    >
      <summary>{props.label}</summary>
      {props.children}
    </details>
  );
}

/** Closes the popover that contains an element, and focuses its button. */
export function close(element: Element): void {
  const details = element.closest("details");
  if (!details) return;
  details.open = false;
  details.querySelector("summary")?.focus();
}
