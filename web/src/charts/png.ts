// A chart as a PNG that stands alone: title, note and legend are drawn around the canvas.

import { colour, FONT } from "../theme";

const MARGIN = 16;
const LINE = 20;

export async function picture(
  title: string,
  note: string,
  legend: readonly { label: string; colour: string }[],
  chart: HTMLCanvasElement,
): Promise<Blob> {
  const scale = chart.width / Math.max(1, chart.clientWidth);
  const width = chart.clientWidth + 2 * MARGIN;
  const head = MARGIN + LINE + (note ? LINE : 0) + (legend.length ? LINE : 0) + 8;
  const canvas = document.createElement("canvas");
  canvas.width = width * scale;
  canvas.height = (head + chart.clientHeight + MARGIN) * scale;
  const context = canvas.getContext("2d");
  if (!context) throw new Error("no canvas");
  context.scale(scale, scale);
  context.fillStyle = colour("surface");
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.textBaseline = "middle";

  let y = MARGIN + LINE / 2;
  context.fillStyle = colour("ink");
  context.font = `600 15px ${FONT}`;
  context.fillText(title, MARGIN, y);
  context.font = `12px ${FONT}`;
  if (note) {
    y += LINE;
    context.fillStyle = colour("muted");
    context.fillText(note, MARGIN, y, width - 2 * MARGIN);
  }
  if (legend.length) {
    y += LINE;
    let x = MARGIN;
    for (const entry of legend) {
      context.fillStyle = entry.colour;
      context.fillRect(x, y - 5, 10, 10);
      context.fillStyle = colour("ink");
      context.fillText(entry.label, x + 15, y);
      x += 15 + context.measureText(entry.label).width + 18;
    }
  }
  context.drawImage(chart, MARGIN, head, chart.clientWidth, chart.clientHeight);
  return new Promise((resolve, reject) => {
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("no PNG"))), "image/png");
  });
}

/** Has the browser save what was made here. */
export function save(blob: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
