// The calls of a flame graph without a document: what a zoom shows, a search finds and a key
// reaches. The drawing of a profile contains these functions, and the dashboard imports them.
//
// A call has `label`, `name`, `x`, `width`, `waited`, `parent` and `children`; an outermost call
// has no parent. `x` and `width` are those of the whole graph, in any unit.

const LEAST_LABEL = 3;

// A label cut to a number of columns; '' if that would leave next to nothing.
export function fitted(label, room) {
  if (room < LEAST_LABEL) return '';
  let used = 0, kept = '';
  for (const character of label) {
    used += character.codePointAt(0) < 0x1100 ? 1 : 2;
    if (used > room) return [...kept].slice(0, -1).join('') + '~';
    kept += character;
  }
  return kept;
}

function isWithin(call, outer) {
  for (let each = call; each; each = each.parent) if (each === outer) return true;
  return false;
}

// Where a call is while `target` is as wide as the graph; null if it is out of sight. The callers
// of the target are `outer`.
export function placed(call, target, left, width) {
  const outer = call !== target && isWithin(target, call);
  if (outer) return {x: left, width, outer};
  if (!isWithin(call, target)) return null;
  const scale = width / target.width;
  return {x: left + (call.x - target.x) * scale, width: call.width * scale, outer};
}

// The calls, other than outermost ones, whose name contains a text in capital or small letters, and
// what is waited in them. A call within one that matches counts once. Callers come first in `calls`.
export function search(calls, text) {
  const wanted = text.toLowerCase();
  const found = new Set(), counted = new Set();
  let waited = 0;
  for (const call of wanted ? calls : []) {
    const matches = call.parent && call.name.toLowerCase().includes(wanted);
    const within = counted.has(call.parent);
    if (matches) found.add(call);
    if (matches || within) counted.add(call);
    if (matches && !within) waited += call.waited;
  }
  return {found, waited};
}

// The call that an arrow key leads to: the caller, the widest callee, a neighbour.
export function reached(call, key, isShown) {
  const beside = step => {
    const shown = call.parent?.children.filter(isShown) ?? [];
    return shown[shown.indexOf(call) + step];
  };
  const widest = () =>
    call.children.reduce((best, each) => (best && best.width >= each.width ? best : each), undefined);
  switch (key) {
    case 'ArrowUp': return call.parent;
    case 'ArrowDown': return widest();
    case 'ArrowLeft': return beside(-1);
    case 'ArrowRight': return beside(1);
    default: return undefined;
  }
}
