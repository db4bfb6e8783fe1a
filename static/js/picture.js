// One picture on the dark canvas: fit, zoom about the cursor, pan, and the model's coarse map in its real cells.
"use strict";
(function () {
  const SCALE = ["#5b2a86", "#a8327d", "#e8605a", "#fcc05b"]; // violet to yellow, never smoothed
  const FLOOR = 64;                                             // below a quarter of the peak: nothing is drawn
  const MOST = 40;
  let figure = null, pan = null, image = null, zoom = null, size = [1, 1], scale = 1, fit = 1, x = 0, y = 0;
  let heat = false;

  function place() {
    pan.style.width = size[0] * scale + "px";
    pan.style.height = size[1] * scale + "px";
    pan.style.transform = "translate(" + x + "px," + y + "px)";
    pan.classList.toggle("near", scale >= 3);
    if (zoom) zoom.textContent = Math.round(scale * 100) + " %";
  }
  function fitNow() {
    const box = figure.getBoundingClientRect();
    fit = Math.min((box.width - 24) / size[0], (box.height - 24) / size[1]);
    scale = fit; x = (box.width - size[0] * scale) / 2; y = (box.height - size[1] * scale) / 2;
    place();
  }
  function zoomAt(factor, clientX, clientY) {
    const box = figure.getBoundingClientRect();
    const next = Math.min(MOST, Math.max(fit * 0.5, scale * factor));
    const px = clientX - box.left, py = clientY - box.top;
    x = px - (px - x) * next / scale; y = py - (py - y) * next / scale; scale = next;
    place();
  }
  function drawHeat(canvas) {
    const width = Number(canvas.dataset.w), height = Number(canvas.dataset.h);
    canvas.width = width; canvas.height = height;
    const draw = canvas.getContext("2d");
    canvas.dataset.values.split(",").map(Number).forEach(function (value, index) {
      if (value < FLOOR) return;
      draw.fillStyle = SCALE[Math.min(3, Math.floor((value - FLOOR) / (256 - FLOOR) * 4))];
      draw.fillRect(index % width, Math.floor(index / width), 1, 1);
    });
  }
  function showHeat(on) {
    heat = on;
    const canvas = figure && figure.querySelector(".heatmap");
    if (canvas) canvas.hidden = !heat;
    const button = document.querySelector("[data-tool=heat]");
    if (button) { button.setAttribute("aria-pressed", String(heat)); button.classList.toggle("on", heat); }
  }
  function broken() { const note = figure.querySelector(".broken"); if (note) note.hidden = false; pan.hidden = true; }

  // `ready` is a decoded <img> of the same address: it takes the place of the one in the markup, so nothing is decoded twice.
  function mount(ready) {
    figure = document.getElementById("pic");
    if (!figure) return;
    figure.classList.add("on");
    pan = figure.querySelector(".pan"); image = pan.querySelector("img"); zoom = document.getElementById("zoom");
    size = [Number(image.getAttribute("width")), Number(image.getAttribute("height"))];
    if (ready) { ready.alt = image.alt; ready.width = size[0]; ready.height = size[1]; ready.draggable = false; image.replaceWith(ready); image = ready; }
    image.addEventListener("error", broken);
    if (image.complete && !image.naturalWidth) broken();
    const canvas = figure.querySelector(".heatmap");
    if (canvas) drawHeat(canvas);
    showHeat(heat);
    fitNow();
    figure.onwheel = function (event) { event.preventDefault(); zoomAt(Math.exp(-event.deltaY * 0.0016), event.clientX, event.clientY); };
    figure.onpointerdown = function (event) {
      if (event.button !== 0) return;
      figure.setPointerCapture(event.pointerId);
      figure.classList.add("moving");
      let lastX = event.clientX, lastY = event.clientY;
      figure.onpointermove = function (move) { x += move.clientX - lastX; y += move.clientY - lastY; lastX = move.clientX; lastY = move.clientY; place(); };
      figure.onpointerup = figure.onpointercancel = function () { figure.onpointermove = null; figure.classList.remove("moving"); };
    };
  }
  document.addEventListener("click", function (event) {
    const tool = event.target.closest("[data-tool]");
    if (!tool) return;
    if (tool.dataset.tool === "heat") showHeat(!heat);
    if (tool.dataset.tool === "fit") fitNow();
  });
  document.addEventListener("keydown", function (event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog")) return;
    if (event.key === "e") showHeat(!heat);
    if (event.key === "r" && figure) fitNow();
  });
  addEventListener("resize", function () { if (figure) fitNow(); });
  window.loopline = Object.assign(window.loopline || {}, { picture: mount });
  mount(null);
})();
