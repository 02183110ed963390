// Zooming, searching and moving by keys in a profile's drawing. The drawing is complete without this
// script.
(() => {
  'use strict';
  const root = document.currentScript.ownerSVGElement;
  const WIDTH = Number(root.dataset.width), LEFT = Number(root.dataset.left);
  const CHARACTER = Number(root.dataset.character), LEAST_LABEL = 3;
  const SVG = 'http://www.w3.org/2000/svg', XHTML = 'http://www.w3.org/1999/xhtml';

  // A call of each section, with its place in the drawing that the file has.
  const sections = [...root.querySelectorAll('.side')].map(element => {
    const calls = [];
    for (const group of element.querySelectorAll('.call')) {
      const rect = group.querySelector('rect');
      const call = {
        group, rect, text: group.querySelector('text'), children: [],
        title: group.querySelector('title').textContent, label: group.dataset.label,
        x: Number(rect.getAttribute('x')), width: Number(rect.getAttribute('width')),
        waited: Number(group.dataset.ns), parent: calls[group.dataset.parent],
      };
      call.parent?.children.push(call);
      calls.push(call);
    }
    for (const call of calls) call.children.sort((a, b) => a.x - b.x);
    return {element, calls, zoomed: calls[0]};
  });

  const columns = character => (character.codePointAt(0) < 0x1100 ? 1 : 2);

  const fitted = (label, width) => {
    const room = Math.floor((width - 6) / CHARACTER);
    if (room < LEAST_LABEL) return '';
    let used = 0, kept = '';
    for (const character of label) {
      used += columns(character);
      if (used > room) return [...kept].slice(0, -1).join('') + '~';
      kept += character;
    }
    return kept;
  };

  const isWithin = (call, outer) => {
    for (let each = call; each; each = each.parent) if (each === outer) return true;
    return false;
  };

  function zoom(section, target) {
    section.zoomed = target;
    const scale = WIDTH / target.width;
    for (const call of section.calls) {
      const outer = call !== target && isWithin(target, call);
      const shown = outer || isWithin(call, target);
      call.group.classList.toggle('gone', !shown);
      call.group.classList.toggle('outer', outer);
      if (!shown) continue;
      const x = outer ? LEFT : LEFT + (call.x - target.x) * scale;
      const width = outer ? WIDTH : call.width * scale;
      call.rect.setAttribute('x', x);
      call.rect.setAttribute('width', width);
      let text = call.text;
      const label = fitted(call.label, width);
      if (!text && label) {
        text = call.text = document.createElementNS(SVG, 'text');
        text.setAttribute('y', Number(call.rect.getAttribute('y')) + Number(root.dataset.baseline));
        call.group.append(text);
      }
      if (text) {
        text.setAttribute('x', x + 3);
        text.textContent = label;
      }
    }
    reset.classList.toggle('gone', sections.every(each => each.zoomed === each.calls[0]) && !input.value);
  }

  function search() {
    const wanted = input.value.toLowerCase();
    const said = [];
    for (const section of sections) {
      let found = 0;
      section.element.classList.toggle('searched', wanted !== '');
      for (const call of section.calls) {
        const matches = wanted !== '' && call.parent && call.title.split('\n')[0].toLowerCase().includes(wanted);
        call.group.classList.toggle('found', Boolean(matches));
        // A call within a call that matches counts once.
        call.counted = matches || Boolean(call.parent?.counted);
        if (matches && !call.parent.counted) found += call.waited;
      }
      const all = section.calls[0].waited;
      said.push(`${section.element.dataset.side} ${(100 * found / all).toFixed(1)} %`);
    }
    result.textContent = wanted ? `found: ${said.join(', ')}` : '';
    reset.classList.toggle('gone', sections.every(each => each.zoomed === each.calls[0]) && !wanted);
  }

  function resetAll() {
    input.value = '';
    search();
    for (const section of sections) zoom(section, section.calls[0]);
  }

  // One call of each section can be reached by Tab; arrows lead from it to the others.
  function focus(section, call) {
    for (const each of section.calls) each.group.setAttribute('tabindex', each === call ? '0' : '-1');
    call.group.focus();
  }

  function neighbour(call, step) {
    const shown = call.parent?.children.filter(each => !each.group.classList.contains('gone')) ?? [];
    return shown[shown.indexOf(call) + step];
  }

  function largest(call) {
    return call.children.reduce((best, each) => (best && best.width >= each.width ? best : each), undefined);
  }

  const controls = document.createElementNS(SVG, 'foreignObject');
  for (const [name, value] of [['x', LEFT + WIDTH - 260], ['y', 12], ['width', 260], ['height', 26]]) {
    controls.setAttribute(name, value);
  }
  const input = document.createElementNS(XHTML, 'input');
  input.type = 'search';
  input.placeholder = 'Search functions and files';
  input.setAttribute('aria-label', input.placeholder);
  controls.append(input);
  const line = (kind, x, y) => {
    const text = document.createElementNS(SVG, 'text');
    text.setAttribute('class', kind);
    text.setAttribute('x', x);
    text.setAttribute('y', y);
    return text;
  };
  const result = line('right found-share', LEFT + WIDTH, 55);
  result.setAttribute('role', 'status');
  const reset = line('button right gone', LEFT + WIDTH - 272, 30);
  reset.textContent = 'Reset (Esc)';
  reset.setAttribute('role', 'button');
  reset.setAttribute('tabindex', '0');
  if (sections.length) root.append(controls, result, reset);

  input.addEventListener('input', search);
  reset.addEventListener('click', resetAll);
  reset.addEventListener('keydown', event => event.key === 'Enter' && resetAll());
  document.addEventListener('keydown', event => event.key === 'Escape' && resetAll());
  for (const section of sections) {
    for (const call of section.calls) {
      call.group.setAttribute('tabindex', call.parent ? '-1' : '0');
      call.group.setAttribute('role', 'button');
      call.group.setAttribute('aria-label', call.title);
      call.group.addEventListener('click', () => zoom(section, call));
      call.group.addEventListener('keydown', event => {
        if (event.key === 'Enter' || event.key === ' ') zoom(section, call);
        const next = {
          ArrowUp: call.parent, ArrowDown: largest(call),
          ArrowLeft: neighbour(call, -1), ArrowRight: neighbour(call, 1),
        }[event.key];
        if (next && !next.group.classList.contains('gone')) focus(section, next);
        if (['Enter', ' '].includes(event.key) || event.key.startsWith('Arrow')) event.preventDefault();
      });
    }
  }
})();
