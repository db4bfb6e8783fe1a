// Shapes on the picture, in pixels of the capture: lines as SVG, tags as HTML at places in per cent, so that zooming
// redraws nothing. The machine's outline is dashed, a person's shapes are solid. A shows and hides them all.
"use strict";
(function () {
  const NS = "http://www.w3.org/2000/svg";
  const HOT = 160; // of 255: cells of the model's map that the machine's outline goes round
  const loopline = window.loopline;
  let hidden = false;

  function svg(name, attributes) {
    const made = document.createElementNS(NS, name);
    Object.keys(attributes).forEach(function (key) { made.setAttribute(key, attributes[key]); });
    return made;
  }
  function corners(shape) {
    if (shape.kind !== "box") return shape.points;
    const a = shape.points[0], b = shape.points[1];
    return [[a[0], a[1]], [b[0], a[1]], [b[0], b[1]], [a[0], b[1]]];
  }
  function bounds(shape) {
    const across = shape.points.map(function (point) { return point[0]; }), down = shape.points.map(function (point) { return point[1]; });
    return { left: Math.min.apply(null, across), top: Math.min.apply(null, down), right: Math.max.apply(null, across), bottom: Math.max.apply(null, down) };
  }
  function sheet(size) { return svg("svg", { class: "shapes", viewBox: "0 0 " + size[0] + " " + size[1], preserveAspectRatio: "none" }); }
  function put(holder, points, kind, open) {
    const line = points.join(" "), name = open ? "polyline" : "polygon";
    holder.append(svg(name, { class: "bx halo", points: line }), svg(name, { class: "bx " + kind, points: line }));
  }
  // Where something stands: in per cent of the picture, whatever its zoom.
  function stand(element, point, size) {
    element.style.left = 100 * point[0] / size[0] + "%";
    element.style.top = 100 * point[1] / size[1] + "%";
    return element;
  }
  function tag(words, kind, shape, size) {
    const made = document.createElement("span"), box = bounds(shape);
    made.className = "shape-tag " + kind;
    made.textContent = words;
    const low = box.bottom > size[1] * 0.94; // no room below: inside, above the lower edge
    made.classList.toggle("up", low);
    return stand(made, [box.left, box.bottom], size);
  }
  // Everything of one kind into a fresh layer: lines first, tags above them.
  function draw(layer, shapes, kind, names, size) {
    const lines = sheet(size);
    layer.replaceChildren(lines);
    shapes.forEach(function (shape, n) {
      put(lines, corners(shape), kind + (layer.dataset.selected === String(n) ? " sel" : ""));
      layer.append(tag("NG " + (names[shape.number] || shape.number), kind, shape, size));
    });
  }
  function layer(pan, name) {
    const made = document.createElement("div");
    made.className = "layer " + name;
    pan.append(made);
    return made;
  }
  function outline(canvas, size) {
    const w = Number(canvas.dataset.w), h = Number(canvas.dataset.h), values = canvas.dataset.values.split(",").map(Number);
    const dx = size[0] / w, dy = size[1] / h, path = [];
    function hot(column, row) { return column >= 0 && row >= 0 && column < w && row < h && values[row * w + column] >= HOT; }
    for (let row = 0; row < h; row++) for (let column = 0; column < w; column++) {
      if (!hot(column, row)) continue;
      const x = column * dx, y = row * dy;
      if (!hot(column, row - 1)) path.push("M" + x + " " + y + "h" + dx);
      if (!hot(column, row + 1)) path.push("M" + x + " " + (y + dy) + "h" + dx);
      if (!hot(column - 1, row)) path.push("M" + x + " " + y + "v" + dy);
      if (!hot(column + 1, row)) path.push("M" + (x + dx) + " " + y + "v" + dy);
    }
    return path.join("");
  }

  // ---- where the pointer is
  function inside(points, at) {
    let odd = false;
    for (let n = 0, last = points.length - 1; n < points.length; last = n++) {
      const a = points[n], b = points[last];
      if ((a[1] > at[1]) !== (b[1] > at[1]) && at[0] < (b[0] - a[0]) * (at[1] - a[1]) / (b[1] - a[1]) + a[0]) odd = !odd;
    }
    return odd;
  }
  function gap(a, b, at) { // from a point to a line piece
    const dx = b[0] - a[0], dy = b[1] - a[1], long = dx * dx + dy * dy;
    const along = long ? Math.max(0, Math.min(1, ((at[0] - a[0]) * dx + (at[1] - a[1]) * dy) / long)) : 0;
    return Math.hypot(at[0] - a[0] - along * dx, at[1] - a[1] - along * dy);
  }
  // The smallest shape at this place, or -1. `near` in capture pixels: lines are thin, gloves are not.
  function hit(shapes, at, near) {
    let found = -1, least = Infinity;
    shapes.forEach(function (shape, n) {
      const points = corners(shape), box = bounds(shape), area = (box.right - box.left) * (box.bottom - box.top);
      const touches = inside(points, at) || points.some(function (point, k) { return gap(point, points[(k + 1) % points.length], at) <= near; });
      if (touches && area < least) { found = n; least = area; }
    });
    return found;
  }

  // ---- what stands on the page: the machine's outline, and the decision that stands
  function show(on) {
    hidden = !on;
    const shown = loopline.shown(), button = document.querySelector("[data-tool=overlays]");
    if (shown) shown.figure.classList.toggle("bare", hidden);
    if (button) { button.setAttribute("aria-pressed", String(!hidden)); button.classList.toggle("on", !hidden); }
  }
  function mount(shown) {
    const canvas = shown.figure.querySelector(".heatmap"), size = shown.size;
    if (canvas && canvas.dataset.looked) {
      const lines = sheet(size), path = outline(canvas, size);
      lines.append(svg("path", { class: "bx halo", d: path }), svg("path", { class: "bx says", d: path }));
      layer(shown.pan, "machine").append(lines);
    }
    const decided = JSON.parse(shown.figure.dataset.decided || "[]");
    if (decided.length) draw(layer(shown.pan, "decided"), decided, "dec", JSON.parse(shown.figure.dataset.names), size);
    show(!hidden);
  }
  document.addEventListener("loopline:picture", function (event) { mount(event.detail); });
  document.addEventListener("click", function (event) { if (event.target.closest("[data-tool=overlays]")) show(hidden); });
  document.addEventListener("keydown", function (event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog")) return;
    if (loopline.act(event) === "overlays") show(hidden);
  });
  loopline.shapes = { svg: svg, sheet: sheet, put: put, draw: draw, layer: layer, stand: stand, corners: corners, bounds: bounds, hit: hit, show: show };
  if (loopline.shown()) mount(loopline.shown());
})();
