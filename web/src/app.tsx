// The frame of every page: where to go, what is shown and of when, and what the recorder lost.

import { useEffect, useState } from "preact/hooks";
import { type Address, go, PAGES, type PageName, target, useAddress } from "./address";
import { type Answer, useAnswer } from "./answers";
import { Boundary } from "./boundary";
import { addRow } from "./comparison";
import { HealthBar, remarks } from "./health";
import { Help } from "./help";
import { useShortcuts } from "./keyboard";
import type { Now } from "./model";
import { moveRange, pauseOrResume, zoomRange } from "./navigation";
import { CapacityPage } from "./pages/capacity";
import { ComparePage } from "./pages/compare";
import { EndpointsPage } from "./pages/endpoints";
import { GcPage } from "./pages/gc";
import { GilPage } from "./pages/gil";
import { LifecyclePage } from "./pages/lifecycle";
import { LoopsPage } from "./pages/loops";
import { OverviewPage } from "./pages/overview";
import type { PageProps } from "./pages/props";
import { SlowPage } from "./pages/slow";
import { RangeBar } from "./range_bar";
import { SelectionBar } from "./selection_bar";
import { choose, chosen, THEMES } from "./theme";

const VIEWS: Record<PageName, (props: PageProps) => preact.JSX.Element> = {
  overview: OverviewPage,
  gil: GilPage,
  loops: LoopsPage,
  capacity: CapacityPage,
  endpoints: EndpointsPage,
  slow: SlowPage,
  lifecycle: LifecyclePage,
  gc: GcPage,
  compare: ComparePage,
};

const NOW_SECONDS = 2;

export function App() {
  const address = useAddress();
  const now = useAnswer<Now>("now", [["window", "10"]], NOW_SECONDS);
  const [help, showHelp] = useState(false);
  const title = PAGES.find(([name]) => name === address.page)?.[1] ?? "";

  useEffect(() => {
    document.title = `${title} · Headway`;
  }, [title]);

  useShortcuts({
    "?": () => showHelp(true),
    t: nextTheme,
    c: () => addRow(),
    p: pauseOrResume,
    "[": () => moveRange(-0.5),
    "]": () => moveRange(0.5),
    "-": () => zoomRange(2),
    "+": () => zoomRange(0.5),
    "=": () => zoomRange(0.5),
    ...Object.fromEntries(
      PAGES.map(([page], index) => [String(index + 1), () => go({ page })] as const),
    ),
  });

  const Page = VIEWS[address.page];
  return (
    <>
      <a class="skip" href={target({})} onClick={focusMain}>
        Skip to content
      </a>
      <Header address={address} onHelp={() => showHelp(true)} />
      <div class="bars">
        <RangeBar address={address} />
        <SelectionBar address={address} now={now.data} />
      </div>
      <HealthBar now={now} />
      <main id="main" tabIndex={-1}>
        <h1>{title}</h1>
        <Boundary key={address.page} title={title}>
          <Page address={address} now={now.data} />
        </Boundary>
      </main>
      <Footer now={now} />
      {help && <Help onClose={() => showHelp(false)} />}
    </>
  );
}

function Header({ address, onHelp }: { address: Address; onHelp: () => void }) {
  const [theme, setTheme] = useState(chosen());
  return (
    <header class="top">
      <a class="brand" href={target({ page: "overview" })}>
        <Logo />
        Headway
      </a>
      <nav aria-label="Pages">
        {PAGES.map(([page, label]) => (
          <a
            key={page}
            href={target({ page })}
            aria-current={page === address.page ? "page" : undefined}
          >
            {label}
            {page === "compare" && address.rows.length > 0 && (
              <span class="badge">{address.rows.length}</span>
            )}
          </a>
        ))}
      </nav>
      <div class="tools">
        <label class="theme">
          <span class="sr">Colours</span>
          <select
            value={theme}
            onChange={(event) => {
              const picked = THEMES.find((name) => name === event.currentTarget.value) ?? "auto";
              choose(picked);
              setTheme(picked);
            }}
          >
            <option value="auto">Auto</option>
            <option value="light">Light</option>
            <option value="dark">Dark</option>
          </select>
        </label>
        <button type="button" onClick={onHelp} title="Keys and words (?)">
          <span aria-hidden="true">?</span>
          <span class="sr">Keys and words</span>
        </button>
      </div>
    </header>
  );
}

function Logo() {
  return (
    <svg viewBox="0 0 32 32" aria-hidden="true" class="logo">
      <rect width="32" height="32" rx="7" />
      <path d="M6 10h20M6 16h6M6 22h3" />
      <path class="second" d="M17 16h9M14 22h12" />
    </svg>
  );
}

function Footer({ now }: { now: Answer<Now> }) {
  const version = now.data?.recorder.version;
  return (
    <footer>
      Headway{typeof version === "string" ? ` ${version}` : ""} · times are this browser's ·{" "}
      <a href="metrics">/metrics</a> · <a href="api/v1/now">/api/v1/now</a>
      {now.data && remarks(now.data.recorder).map((text) => <span key={text}> · {text}</span>)}
    </footer>
  );
}

function focusMain(event: Event): void {
  event.preventDefault();
  document.getElementById("main")?.focus();
}

function nextTheme(): void {
  choose(THEMES[(THEMES.indexOf(chosen()) + 1) % THEMES.length] ?? "auto");
}
