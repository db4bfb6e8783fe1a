// Drawing defects in the review: one tool selects and moves, one draws boxes, one polygons; the tool stays chosen between pictures.
// Every step can be taken back. What is drawn goes with the decision as the form's hidden field, and into the draft.
"use strict";
(function () {
  const root = document.getElementById("review"), loopline = window.loopline;
  if (!root) return;
  const SMALLEST = 1.5, NEAR = 8, NEAR_TOUCH = 22, DOUBLE_MS = 400, STEPS = 200; // capture pixels; screen pixels; ms; undo
  const NUDGE = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  const TOOLS = ["select", "box", "polygon"];
  let tool = sessionStorage.getItem("loopline.tool") || "select";
  let pen = Number(sessionStorage.getItem("loopline.pen." + root.dataset.line)) || 0; // class of the next shape
  let record = null, shown = null, layer = null, sketch = null, names = {}, chosen = -1, tracing = null, open = false;

  // ---- what is drawn
  function round(value) { return Math.round(value * 1000) / 1000; }
  function clamp(point) { return [0, 1].map(function (n) { return round(Math.min(Math.max(point[n], 0), shown.size[n])); }); }
  function near(event) { return (event.pointerType === "touch" ? NEAR_TOUCH : NEAR) / loopline.scale(); }
  function remember() {
    record.undo.push(JSON.stringify(record.regions));
    if (record.undo.length > STEPS) record.undo.shift();
  }
  function changed() { loopline.draft.touch(record); redraw(); }
  function select(n) { chosen = n; redraw(); }
  function large(shape) {
    const box = loopline.shapes.bounds(shape);
    return box.right - box.left >= SMALLEST && box.bottom - box.top >= SMALLEST;
  }
  function add(shape) {
    if (!large(shape)) return redraw();
    remember();
    record.regions.push(shape);
    loopline.shapes.show(true);
    chosen = record.regions.length - 1;
    changed();
  }
  function replace(n, points, before) {
    const shape = Object.assign({}, record.regions[n], { points: points });
    if (shape.kind === "box") { // dragged over its other side
      const box = loopline.shapes.bounds(shape);
      shape.points = [[box.left, box.top], [box.right, box.bottom]];
    }
    record.regions[n] = JSON.parse(before)[n];
    if (large(shape) && JSON.stringify(shape.points) !== JSON.stringify(record.regions[n].points)) { remember(); record.regions[n] = shape; changed(); }
    else redraw();
  }
  function remove() {
    if (tracing) { tracing.points.pop(); if (!tracing.points.length) tracing = null; redraw(); return true; }
    if (!record || chosen < 0) return false;
    remember();
    record.regions.splice(chosen, 1);
    chosen = -1;
    changed();
    return true;
  }
  function undo() {
    if (tracing) return remove();
    if (!record || !open || !record.undo.length) return false;
    record.regions = JSON.parse(record.undo.pop());
    chosen = Math.min(chosen, record.regions.length - 1);
    changed();
    return true;
  }
  function classify(number) {
    remember();
    record.regions[chosen] = Object.assign({}, record.regions[chosen], { number: number });
    dip(number);
    changed();
  }
  function dip(number) {
    pen = number;
    sessionStorage.setItem("loopline.pen." + root.dataset.line, String(number));
    tell();
  }

  // ---- showing it
  function knob(point, n) {
    const made = document.createElement("i");
    made.className = "knob";
    made.dataset.at = n;
    return loopline.shapes.stand(made, point, shown.size);
  }
  function redraw() {
    if (!layer) return;
    layer.dataset.selected = String(chosen);
    loopline.shapes.draw(layer, record.regions, "dec", names, shown.size);
    if (chosen >= 0 && open) loopline.shapes.corners(record.regions[chosen]).forEach(function (point, n) { layer.append(knob(point, n)); });
    trace(null);
    const field = document.querySelector("#work[data-id='" + record.id + "'] #regions");
    if (field) field.value = record.regions.length ? JSON.stringify(record.regions) : "";
    document.querySelectorAll("[data-tool=remove]").forEach(function (button) { button.setAttribute("aria-disabled", String(chosen < 0)); });
    tell();
  }
  function trace(to) { // what is being drawn, up to the pointer
    if (!sketch) return;
    sketch.replaceChildren();
    if (!tracing) return;
    const points = tracing.kind === "box" ? loopline.shapes.corners({ kind: "box", points: [tracing.points[0], to || tracing.points[0]] }) : tracing.points.concat(to ? [to] : []);
    const lines = loopline.shapes.sheet(shown.size);
    loopline.shapes.put(lines, points, "dec", tracing.kind !== "box");
    sketch.append(lines);
    if (tracing.kind === "polygon") { const first = knob(tracing.points[0], 0); first.classList.add("first"); sketch.append(first); }
  }
  function tell() {
    document.querySelectorAll("[data-draw]").forEach(function (button) {
      const on = button.dataset.draw === tool;
      button.setAttribute("aria-pressed", String(on));
      button.classList.toggle("on", on);
    });
    if (shown) shown.figure.dataset.drawing = open ? tool : "select";
    const word = document.getElementById("pen");
    if (word) word.textContent = names[pen] || "";
  }

  // ---- pointers: box by dragging, polygon by points, V moves shapes and their corners
  function box(event, at) {
    tracing = { kind: "box", points: [clamp(at)] };
    chosen = -1;
    redraw();
    return {
      move: function (_event, to) { trace(clamp(to)); },
      up: function (_event, to) { const from = tracing.points[0]; tracing = null; add(rectangle(from, clamp(to))); },
      cancel: function () { tracing = null; redraw(); },
    };
  }
  function rectangle(a, b) {
    return { number: pen, kind: "box", points: [[Math.min(a[0], b[0]), Math.min(a[1], b[1])], [Math.max(a[0], b[0]), Math.max(a[1], b[1])]] };
  }
  function polygon(event, at) {
    const point = clamp(at), now = performance.now();
    if (!tracing) {
      tracing = { kind: "polygon", points: [point], last: now };
      select(-1);
      return held();
    }
    const first = tracing.points[0], last = tracing.points[tracing.points.length - 1];
    function close(to) { return to && Math.hypot(to[0] - point[0], to[1] - point[1]) <= near(event); }
    const again = close(last) && now - tracing.last < DOUBLE_MS;
    tracing.last = now;
    if (tracing.points.length >= 3 && (again || close(first))) finish();
    else if (!again) { tracing.points.push(point); trace(point); }
    return held();
  }
  function held() { return { move: hover, up: function () { /* the next point follows */ }, cancel: function () { if (tracing) remove(); } }; }
  function finish() {
    const points = tracing.points;
    tracing = null;
    if (points.length >= 3) add({ number: pen, kind: "polygon", points: points }); else redraw();
  }
  function hover(_event, at) { if (tracing && tracing.kind === "polygon") trace(clamp(at)); }
  function corner(n) {
    const before = JSON.stringify(record.regions), shape = record.regions[chosen];
    return drag(before, function (to) {
      if (shape.kind === "polygon") return shape.points.map(function (point, k) { return k === n ? clamp(to) : point; });
      const across = loopline.shapes.corners(shape)[(n + 2) % 4];
      return [across, clamp(to)];
    });
  }
  function whole(at) {
    const before = JSON.stringify(record.regions), shape = record.regions[chosen];
    return drag(before, function (to) { return shifted(shape, to[0] - at[0], to[1] - at[1]); });
  }
  function shifted(shape, dx, dy) { // stays inside the picture, keeps its size
    const edge = loopline.shapes.bounds(shape);
    dx = Math.min(Math.max(dx, -edge.left), shown.size[0] - edge.right);
    dy = Math.min(Math.max(dy, -edge.top), shown.size[1] - edge.bottom);
    return shape.points.map(function (point) { return [round(point[0] + dx), round(point[1] + dy)]; });
  }
  function drag(before, points) {
    const n = chosen;
    let last = null;
    function preview(to) { last = to; record.regions[n] = Object.assign({}, record.regions[n], { points: points(to) }); redraw(); }
    function back() { record.regions = JSON.parse(before); redraw(); }
    return {
      move: function (_event, to) { preview(to); },
      up: function () { if (last) replace(n, points(last), before); },
      cancel: back,
    };
  }
  function down(event, at) {
    if (!open || !record || shown.figure.classList.contains("bare") && tool === "select") return null;
    if (tool === "polygon") return polygon(event, at);
    const grip = event.target.closest(".knob");
    if (grip && chosen >= 0) return corner(Number(grip.dataset.at));
    if (tool === "box") return box(event, at);
    const found = loopline.shapes.hit(record.regions, at, near(event));
    if (found !== chosen) select(found);
    return found < 0 ? null : whole(at);
  }
  loopline.tool = { down: down, hover: hover };

  // ---- keys and buttons
  function choose(name) {
    if (tracing) finish();
    tool = name;
    sessionStorage.setItem("loopline.tool", tool);
    tell();
  }
  function pressed(event) {
    const key = loopline.letter(event), act = loopline.act(event);
    if (TOOLS.includes(act)) return choose(act), true;
    if (act === "remove") return remove();
    if (key === "Enter" && tracing) return finish(), true;
    if (key === "Escape" && tracing) { tracing = null; redraw(); return true; }
    if (key === "Escape" && chosen >= 0) return select(-1), true;
    if (event.shiftKey && NUDGE[key] && chosen >= 0) {
      const before = JSON.stringify(record.regions), by = NUDGE[key];
      replace(chosen, shifted(record.regions[chosen], by[0], by[1]), before);
      return true;
    }
    return false;
  }
  document.addEventListener("keydown", function (event) { // before the review's own keys
    if (event.ctrlKey || event.metaKey || event.altKey || !open) return;
    if (event.target.closest("input, textarea, select") || document.querySelector("dialog[open]")) return;
    if (pressed(event)) { event.preventDefault(); event.stopImmediatePropagation(); }
  }, true);
  document.addEventListener("click", function (event) {
    const button = event.target.closest("[data-draw], [data-tool=remove]");
    if (!button || button.getAttribute("aria-disabled") === "true") return;
    if (button.dataset.draw) choose(button.dataset.draw); else remove();
  });
  document.addEventListener("input", function (event) {
    if (event.target.id !== "comment" || !record) return;
    record.comment = event.target.value;
    loopline.draft.touch(record);
  });
  document.addEventListener("loopline:draft", function (event) { // the other version was chosen
    if (event.detail !== record) return;
    document.getElementById("comment").value = record.comment;
    chosen = -1;
    redraw();
  });

  function leave() { if (tracing && tracing.kind === "polygon" && tracing.points.length >= 3) finish(); tracing = null; }
  function mount(picture) {
    const form = document.getElementById("work");
    if (record) leave();
    shown = picture; chosen = -1; layer = sketch = record = null;
    open = Boolean(form && form.dataset.open);
    names = JSON.parse(picture.figure.dataset.names || "{}");
    const first = document.querySelector(".cls");
    if (!document.querySelector('.cls[value="NG:' + pen + '"]') && first) pen = Number(first.value.slice(3));
    tell();
    if (!open) return;
    record = loopline.draft.open(form.dataset.id, JSON.parse(form.dataset.draft), picture.size);
    document.getElementById("comment").value = record.comment;
    layer = loopline.shapes.layer(picture.pan, "mine");
    sketch = loopline.shapes.layer(picture.pan, "sketch");
    redraw();
  }
  document.addEventListener("loopline:picture", function (event) { mount(event.detail); });
  loopline.draw = {
    undo: undo, classify: classify, dip: dip, settle: function () { if (record) leave(); },
    count: function () { return record && open ? record.regions.length : 0; },
    selected: function () { return open && chosen >= 0; },
  };
  if (loopline.shown()) mount(loopline.shown());
})();
