// The brightness window of a picture with more than 8 bits: two sliders and keys that change only what is seen.
// Level moves evenly from the least to the greatest stored value; width grows by its square, fine where it is narrow.
"use strict";
(function () {
  const STEPS = 1000, BY = 10, SOON_MS = 60;
  const loopline = window.loopline;
  let box = null, range = null, level = 0, width = 0, timer = 0, asked = 0;

  function part(value) { return Math.min(Math.max((value - range.least) / (range.most - range.least), 0), 1); }
  function toSlider() {
    box.querySelector("[data-lv=level]").value = Math.round(STEPS * part(level));
    box.querySelector("[data-lv=width]").value = Math.round(STEPS * Math.sqrt(Math.min(width / (range.most - range.least), 1)));
  }
  function fromSlider() {
    level = range.least + (range.most - range.least) * box.querySelector("[data-lv=level]").value / STEPS;
    width = Math.max((range.most - range.least) * Math.pow(box.querySelector("[data-lv=width]").value / STEPS, 2), least());
  }
  function least() { return (range.most - range.least) / STEPS / STEPS; }
  function given() { return level === (range.low + range.high) / 2 && width === range.high - range.low; }
  function bar(name, low, high) {
    const rect = box.querySelector("." + name), from = part(low), to = part(high);
    rect.setAttribute("x", 100 * from + "%");
    rect.setAttribute("width", Math.max(100 * (to - from), 0.5) + "%");
  }
  function show() {
    bar("now", level - width / 2, level + width / 2);
    bar("given", range.low, range.high);
    const words = [level - width / 2, level + width / 2].map(function (value) { return range.most - range.least > 50 ? Math.round(value) : Number(value.toPrecision(4)); }).join(" – ");
    box.querySelector(".lv-says").textContent = words + (given() ? " · " + (range.line ? box.dataset.line : box.dataset.auto) : "");
    clearTimeout(timer);
    timer = setTimeout(load, SOON_MS);
  }
  function load() { // the newest window wins, whichever answer is the last
    const shown = loopline.shown(), own = ++asked, address = shown.image.src.replace(/&(low|high)=[^&]*/g, "");
    const wanted = given() ? address : address + "&low=" + (level - width / 2) + "&high=" + (level + width / 2);
    if (wanted === shown.image.src) return;
    const image = new Image();
    image.src = wanted;
    image.decode().then(function () { if (own === asked && shown.image.isConnected) shown.image.src = wanted; }, function () { /* the view stays as it is */ });
  }
  function reset() { level = (range.low + range.high) / 2; width = range.high - range.low; toSlider(); show(); }
  function nudge(name, by) {
    const slider = box.querySelector("[data-lv=" + name + "]");
    slider.value = Number(slider.value) + by;
    fromSlider();
    show();
  }
  function mount() {
    box = document.getElementById("levels");
    range = null;
    if (!box) return;
    const mine = box;
    fetch(box.dataset.url, { headers: { Accept: "application/json" } }).then(function (answer) {
      if (!answer.ok) throw new Error(String(answer.status));
      return answer.json();
    }).then(function (told) {
      if (mine !== box || told.most <= told.least) return;
      range = told;
      level = (range.low + range.high) / 2; width = range.high - range.low;
      box.hidden = false;
      toSlider(); show();
    }).catch(function () { /* without the figures there is nothing to slide; the picture shows as it is */ });
  }
  document.addEventListener("input", function (event) { if (range && event.target.closest("#levels")) { fromSlider(); show(); } });
  document.addEventListener("click", function (event) { if (range && event.target.closest("[data-lv=reset]")) reset(); });
  document.addEventListener("keydown", function (event) {
    if (!range || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input:not([type=range]), textarea, select, dialog")) return;
    const act = loopline.act(event);
    if (act === "level_down" || act === "level_up") nudge("level", act === "level_down" ? -BY : BY);
    if (act === "width_down" || act === "width_up") nudge("width", act === "width_down" ? -BY : BY);
    if (act === "window") reset();
  });
  document.addEventListener("loopline:picture", mount);
  mount();
})();
