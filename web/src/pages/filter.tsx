// The text field that narrows a list; the key / focuses it.

import { useEffect, useRef } from "preact/hooks";
import { look } from "../address";
import { isShortcut } from "../keyboard";

export function Filter({ value, label }: { value: string; label: string }) {
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => {
    const onKeyDown = (event: KeyboardEvent) => {
      if (event.key !== "/" || !isShortcut(event)) return;
      event.preventDefault();
      input.current?.focus();
    };
    addEventListener("keydown", onKeyDown);
    return () => removeEventListener("keydown", onKeyDown);
  }, []);
  return (
    <label class="inline">
      {label}{" "}
      <input
        ref={input}
        type="search"
        value={value}
        onInput={(event) => look("q", event.currentTarget.value)}
      />
    </label>
  );
}
