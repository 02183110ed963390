// Requests that failed. The page then shows earlier answers, dimmed.

import { type Answer, NO_ANSWER } from "./answers";

export function Trouble({ answers }: { answers: Answer<unknown>[] }) {
  const said = new Set(answers.flatMap(({ error }) => (error ? [error] : [])));
  // The frame of the page shows that message already.
  said.delete(NO_ANSWER);
  return (
    <>
      {[...said].map((error) => (
        <p key={error} class="alert critical" role="alert">
          {error}
        </p>
      ))}
    </>
  );
}

/** A placeholder until the first answer. */
export function Waiting({ answer }: { answer: Answer<unknown> }) {
  return answer.error ? <Trouble answers={[answer]} /> : <p class="note">Asking the recorder …</p>;
}
