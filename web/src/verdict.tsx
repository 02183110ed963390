// A verdict: what is the matter, in plain words, with its evidence and what to try.

import { count, inUnit, seconds, span } from "./format";
import type { Severity, Verdict } from "./model";

const SIGNS: Record<Severity, string> = { ok: "✓", note: "i", warning: "!", critical: "✕" };
const SAID: Record<Severity, string> = {
  ok: "Fine",
  note: "Note",
  warning: "Warning",
  critical: "Critical",
};

export function Sign({ severity }: { severity: Severity }) {
  return (
    <span class="sign" data-severity={severity}>
      <span aria-hidden="true">{SIGNS[severity]}</span>
      <span class="sr">{SAID[severity]}</span>
    </span>
  );
}

/** A text whose parts between backticks are code. */
function withCode(text: string) {
  return text.split("`").map((part, index) => (index % 2 ? <code key={index}>{part}</code> : part));
}

export function VerdictCard({ verdict, about }: { verdict: Verdict; about: string }) {
  const { severity, sample } = verdict;
  return (
    <article class="card verdict" data-severity={severity}>
      <header>
        <Sign severity={severity} />
        <div>
          <p class="about">{about}</p>
          <h2>{verdict.title}</h2>
        </div>
      </header>
      <p>{verdict.text}</p>
      {verdict.evidence.length > 0 && (
        <dl class="evidence">
          {verdict.evidence.map((item) => (
            <div key={item.text}>
              <dt>{item.text}</dt>
              <dd>
                {inUnit(item.value, item.unit)}
                {item.limit != null && <small> (limit {inUnit(item.limit, item.unit)})</small>}
              </dd>
            </div>
          ))}
        </dl>
      )}
      {verdict.advice.length > 0 && (
        <ul class="advice">
          {verdict.advice.map((item) => (
            <li key={item.try}>
              <strong>Try:</strong> {withCode(item.try)}{" "}
              <span class="expect">{withCode(item.expect)}</span>
            </li>
          ))}
        </ul>
      )}
      <p class="note">
        From {sample.requests > 0 ? `${count(sample.requests)} requests in ` : ""}
        {sample.seconds < 60 ? seconds(sample.seconds) : span(sample.seconds)}.
      </p>
    </article>
  );
}
