// One picture on the dark canvas: fit, zoom about the cursor or between two fingers, pan, and the model's coarse map in
// its real cells. What a single pointer does is asked of `loopline.tool` first; without an answer it pans.
"use strict";
(function () {
  const SCALE = ["#5b2a86", "#a8327d", "#e8605a", "#fcc05b"]; // violet to yellow, never smoothed
  const FLOOR = 64;                                             // below a quarter of the peak: nothing is drawn
  const MOST = 40, STEP = 1.25;
  const loopline = window.loopline = window.loopline || {};
  const fingers = new Map();                                    // pointers that are down -> [clientX, clientY]
  let figure = null, pan = null, image = null, zoom = null, size = [1, 1], scale = 1, fit = 1, x = 0, y = 0;
  let heat = sessionStorage.getItem("loopline.heat") === "1", cover = Number(sessionStorage.getItem("loopline.cover")) || 45, gesture = null;

  function place() {
    pan.style.width = size[0] * scale + "px";
    pan.style.height = size[1] * scale + "px";
    pan.style.transform = "translate(" + x + "px," + y + "px)";
    pan.classList.toggle("close", scale >= 3);
    if (zoom) zoom.textContent = (scale < 0.1 ? (scale * 100).toFixed(1) : Math.round(scale * 100)) + " %";
    document.dispatchEvent(new CustomEvent("loopline:view"));
  }
  // The whole picture; asked for again, its short side fills the stage: a line-scan picture is a thread when it fits.
  function fitNow(again) {
    const box = figure.getBoundingClientRect(), across = (box.width - 24) / size[0], down = (box.height - 24) / size[1];
    const whole = Math.min(across, down), filled = Math.min(Math.max(across, down), Math.max(1, whole));
    fit = whole;
    scale = again === true && Math.abs(scale - whole) < whole * 0.001 ? filled : whole; x = (box.width - size[0] * scale) / 2; y = (box.height - size[1] * scale) / 2;
    place();
  }
  function zoomAt(factor, clientX, clientY) {
    const box = figure.getBoundingClientRect();
    const next = Math.min(MOST, Math.max(Math.min(fit * 0.5, 1), scale * factor));
    const px = clientX - box.left, py = clientY - box.top;
    x = px - (px - x) * next / scale; y = py - (py - y) * next / scale; scale = next;
    place();
  }
  function zoomBy(factor) {
    const box = figure.getBoundingClientRect();
    zoomAt(factor, box.left + box.width / 2, box.top + box.height / 2);
  }
  function at(event) { // where this is on the capture, in its own pixels
    const box = figure.getBoundingClientRect();
    return [(event.clientX - box.left - x) / scale, (event.clientY - box.top - y) / scale];
  }

  // ---- pointers
  function panning(event) {
    let lastX = event.clientX, lastY = event.clientY;
    figure.classList.add("moving");
    return {
      move: function (move) { x += move.clientX - lastX; y += move.clientY - lastY; lastX = move.clientX; lastY = move.clientY; place(); },
      up: function () { figure.classList.remove("moving"); },
    };
  }
  function pinching() {
    function spread() {
      const pair = Array.from(fingers.values());
      return { x: (pair[0][0] + pair[1][0]) / 2, y: (pair[0][1] + pair[1][1]) / 2, far: Math.hypot(pair[0][0] - pair[1][0], pair[0][1] - pair[1][1]) || 1 };
    }
    let last = spread();
    return {
      move: function () {
        const now = spread();
        x += now.x - last.x; y += now.y - last.y;
        zoomAt(now.far / last.far, now.x, now.y);
        last = now;
      },
      up: function () { /* the finger that stays down does nothing more */ },
    };
  }
  function stop(how, event) {
    const ended = gesture;
    gesture = null;
    if (ended && ended[how]) ended[how](event, event && at(event));
    else if (ended) ended.up(event, event && at(event));
  }
  function down(event) {
    if (event.button > 1 || fingers.size > 1) return;
    try { figure.setPointerCapture(event.pointerId); } catch (_gone) { return; }
    fingers.set(event.pointerId, [event.clientX, event.clientY]);
    if (fingers.size === 2) { stop("cancel", event); gesture = pinching(); return; }
    gesture = (event.button === 0 && loopline.tool && loopline.tool.down(event, at(event))) || panning(event);
  }
  function moved(event) {
    if (fingers.has(event.pointerId)) fingers.set(event.pointerId, [event.clientX, event.clientY]);
    if (gesture) gesture.move(event, at(event));
    else if (loopline.tool) loopline.tool.hover(event, at(event));
  }
  function up(event) {
    if (!fingers.delete(event.pointerId)) return;
    stop(event.type === "pointerup" ? "up" : "cancel", event);
  }

  // ---- the model's map
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
    const canvas = figure && figure.querySelector(".heatmap"), slider = document.getElementById("heat-cover");
    if (canvas) { canvas.hidden = !heat; canvas.style.opacity = cover / 100; }
    const button = document.querySelector("[data-tool=heat]");
    if (button) { button.setAttribute("aria-pressed", String(heat)); button.classList.toggle("on", heat); }
    if (slider) { slider.value = cover; slider.disabled = !heat; }
  }
  function turnHeat() { sessionStorage.setItem("loopline.heat", heat ? "0" : "1"); showHeat(!heat); }
  document.addEventListener("input", function (event) {
    if (event.target.id !== "heat-cover") return;
    cover = Number(event.target.value);
    sessionStorage.setItem("loopline.cover", String(cover));
    showHeat(heat);
  });
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
    fingers.clear(); gesture = null;
    fitNow();
    figure.onwheel = function (event) { event.preventDefault(); zoomAt(Math.exp(-event.deltaY * 0.0016), event.clientX, event.clientY); };
    figure.onmousedown = function (event) { if (event.button === 1) event.preventDefault(); }; // no scroll cross under the middle button
    figure.onpointerdown = down;
    figure.onpointermove = moved;
    figure.onpointerup = figure.onpointercancel = up;
    document.dispatchEvent(new CustomEvent("loopline:picture", { detail: { figure: figure, pan: pan, size: size } }));
  }
  document.addEventListener("click", function (event) {
    const tool = event.target.closest("[data-tool]");
    if (!tool) return;
    if (tool.dataset.tool === "heat") turnHeat();
    if (tool.dataset.tool === "fit") fitNow(true);
    if (tool.dataset.tool === "in") zoomBy(STEP);
    if (tool.dataset.tool === "out") zoomBy(1 / STEP);
  });
  document.addEventListener("keydown", function (event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !figure || event.target.closest("input, textarea, select, dialog")) return;
    const act = loopline.act(event);
    if (act === "heat") turnHeat();
    if (act === "fit") fitNow(true);
    if (act === "zoom_in") zoomBy(STEP);
    if (act === "zoom_out") zoomBy(1 / STEP);
  });
  addEventListener("resize", function () { if (figure) fitNow(); });
  loopline.picture = mount;
  loopline.scale = function () { return scale; };
  loopline.shown = function () { return figure && { figure: figure, pan: pan, size: size, image: image }; };
  mount(null);
})();
