// A page that fails while it is drawn leaves the others, the range and the selection usable.

import { Component, type ComponentChildren } from "preact";

interface Props {
  title: string;
  children: ComponentChildren;
}

export class Boundary extends Component<Props, { error: unknown }> {
  override state = { error: null };

  static override getDerivedStateFromError(error: unknown) {
    return { error };
  }

  override render() {
    const { error } = this.state;
    if (error === null) return this.props.children;
    return (
      <section class="card" role="alert">
        <h2>{this.props.title} cannot be shown</h2>
        <p>
          The recorder's answer has a form that this page does not know:{" "}
          <code>{String(error)}</code>
        </p>
        <button type="button" onClick={() => this.setState({ error: null })}>
          Try again
        </button>
      </section>
    );
  }
}
