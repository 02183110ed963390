// Where the page begins.

import { render } from "preact";
import { App } from "./app";
import { apply, chosen } from "./theme";
import "uplot/dist/uPlot.min.css";
import "./style/colours.css";
import "./style/base.css";
import "./style/frame.css";
import "./style/cards.css";
import "./style/charts.css";
import "./style/flame.css";
import "./style/tables.css";
import "./style/help.css";
import "./style/phone.css";

apply(chosen());
const place = document.getElementById("app");
if (place) {
  place.replaceChildren();
  render(<App />, place);
}
