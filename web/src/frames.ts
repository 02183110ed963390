// The names of calls, as in a profile: "function (file:line)".

export interface Frame {
  function: string;
  /** "" for a call that stands for no code. */
  file: string;
  /** 0 if it is unknown. */
  line: number;
}

/** FILE:LINE, as far as they are known. */
export function place({ file, line }: Frame): string {
  return file && line > 0 ? `${file}:${line}` : file;
}

/** FUNCTION (FILE:LINE), as far as they are known. */
export function label(frame: Frame): string {
  const where = place(frame);
  return where ? `${frame.function} (${where})` : frame.function;
}

/** The label with the file's name alone, and its folder where packages share the name. */
export function shortLabel(frame: Frame): string {
  const parts = /\/__(init|main)__\.py$/.test(frame.file) ? 2 : 1;
  return label({ ...frame, file: frame.file.split("/").slice(-parts).join("/") });
}
