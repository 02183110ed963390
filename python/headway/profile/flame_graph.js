// Zooming, searching and moving by keys in a profile's drawing. The drawing is complete without this
// script.
(() => {
  'use strict';
  // FUNCTIONS of flame_calls.js
  const root = document.currentScript.ownerSVGElement;
  const WIDTH = Number(root.dataset.width), LEFT = Number(root.dataset.left);
  const CHARACTER = Number(root.dataset.character);
  const SVG = 'http://www.w3.org/2000/svg', XHTML = 'http://www.w3.org/1999/xhtml';

  // A call of each section, with its place in the drawing that the file has.
  const sections = [...root.querySelectorAll('.side')].map(element => {
    const calls = [];
    for (const group of element.querySelectorAll('.call')) {
      const rect = group.querySelector('rect');
      const call = {
        group, rect, text: group.querySelector('text'), children: [],
        title: group.querySelector('title').textContent, label: group.dataset.label,
        name: group.querySelector('title').textContent.split('\n')[0],
        x: Number(rect.getAttribute('x')), width: Number(rect.getAttribute('width')),
        waited: Number(group.dataset.ns), parent: calls[group.dataset.parent],
      };
      call.parent?.children.push(call);
      calls.push(call);
    }
    for (const call of calls) call.children.sort((a, b) => a.x - b.x);
    return {element, calls, zoomed: calls[0]};
  });

  function zoom(section, target) {
    section.zoomed = target;
    for (const call of section.calls) {
      const place = placed(call, target, LEFT, WIDTH);
      call.group.classList.toggle('gone', !place);
      call.group.classList.toggle('outer', Boolean(place?.outer));
      if (!place) continue;
      const {x, width} = place;
      call.rect.setAttribute('x', x);
      call.rect.setAttribute('width', width);
      let text = call.text;
      const label = fitted(call.label, Math.floor((width - 6) / CHARACTER));
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

  function show() {
    const said = [];
    for (const section of sections) {
      const {found, waited} = search(section.calls, input.value);
      section.element.classList.toggle('searched', input.value !== '');
      for (const call of section.calls) call.group.classList.toggle('found', found.has(call));
      const share = (100 * waited) / section.calls[0].waited;
      said.push(`${section.element.dataset.side} ${share.toFixed(1)} %`);
    }
    result.textContent = input.value ? `found: ${said.join(', ')}` : '';
    reset.classList.toggle('gone', sections.every(each => each.zoomed === each.calls[0]) && !input.value);
  }

  function resetAll() {
    input.value = '';
    show();
    for (const section of sections) zoom(section, section.calls[0]);
  }

  // One call of each section can be reached by Tab; arrows lead from it to the others.
  function focus(section, call) {
    for (const each of section.calls) each.group.setAttribute('tabindex', each === call ? '0' : '-1');
    call.group.focus();
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

  input.addEventListener('input', show);
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
        const isShown = each => !each.group.classList.contains('gone');
        const next = reached(call, event.key, isShown);
        if (next && isShown(next)) focus(section, next);
        if (['Enter', ' '].includes(event.key) || event.key.startsWith('Arrow')) event.preventDefault();
      });
    }
  }
})();
