// What could not be answered. What is shown then is from before, and dimmed.

import { type Answer, NO_ANSWER } from "./answers";

export function Trouble({ answers }: { answers: Answer<unknown>[] }) {
  const said = new Set(answers.flatMap(({ error }) => (error ? [error] : [])));
  // The frame of the page says that already.
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

/** In the place of what is not answered yet. */
export function Waiting({ answer }: { answer: Answer<unknown> }) {
  return answer.error ? <Trouble answers={[answer]} /> : <p class="note">Asking the recorder …</p>;
}
