// A chart as a PNG that stands alone: title, note and legend are drawn around the canvas.

import { colour, FONT } from "../theme";

export interface LegendEntry {
  label: string;
  colour: string;
  /** Of a line; an entry without them is a patch of colour. */
  dashes?: number[];
}

const MARGIN = 16;
const LINE = 20;
const KEY = 24;

export async function picture(
  title: string,
  note: string,
  legend: readonly LegendEntry[],
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
      drawKey(context, entry, x, y);
      context.fillStyle = colour("ink");
      context.fillText(entry.label, x + KEY + 5, y);
      x += KEY + 5 + context.measureText(entry.label).width + 18;
    }
  }
  context.drawImage(chart, MARGIN, head, chart.clientWidth, chart.clientHeight);
  return new Promise((resolve, reject) => {
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("no PNG"))), "image/png");
  });
}

function drawKey(context: CanvasRenderingContext2D, entry: LegendEntry, x: number, y: number) {
  if (!entry.dashes) {
    context.fillStyle = entry.colour;
    context.fillRect(x + KEY - 10, y - 5, 10, 10);
    return;
  }
  context.strokeStyle = entry.colour;
  context.lineWidth = 2;
  context.setLineDash(entry.dashes);
  context.beginPath();
  context.moveTo(x, y);
  context.lineTo(x + KEY, y);
  context.stroke();
  context.setLineDash([]);
}

/** Has the browser save what was made here. */
export function save(blob: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
