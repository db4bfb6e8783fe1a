// The grid: choose pictures by mouse, range and keyboard, and decide them together. What is chosen is a list of ids in
// this page; the same form works without this script.
"use strict";
(function () {
  const form = document.getElementById("together"), bar = form && form.querySelector(".actbar");
  if (!bar) return;
  const boxes = Array.from(form.querySelectorAll(".pick")), chosen = document.getElementById("chosen");
  let last = null;

  function show() {
    const count = boxes.filter(function (box) { return box.checked; }).length;
    chosen.textContent = count;
    bar.querySelectorAll("[data-chosen]").forEach(function (each) { each.textContent = count; });
    boxes.forEach(function (box) { box.closest(".tile").classList.toggle("sel", box.checked); });
    bar.querySelectorAll("[name=choice]").forEach(function (button) { button.setAttribute("aria-disabled", String(!count)); });
  }
  function choose(all) { boxes.forEach(function (box) { box.checked = all; }); show(); }
  form.addEventListener("click", function (event) {
    const box = event.target.closest(".pick");
    if (!box) return;
    if (event.shiftKey && last) {
      const from = boxes.indexOf(last), to = boxes.indexOf(box);
      for (let at = Math.min(from, to); at <= Math.max(from, to); at++) boxes[at].checked = box.checked;
    }
    last = box;
    show();
  });
  document.getElementById("choose-all").addEventListener("click", function () { choose(true); });
  document.getElementById("choose-none").addEventListener("click", function () { choose(false); });
  document.addEventListener("keydown", function (event) {
    if (event.target.closest("input:not(.pick), textarea, select") || document.querySelector("dialog[open]")) return;
    const ctrl = event.ctrlKey || event.metaKey, key = window.loopline.letter(event);
    if (ctrl && key === "a") { event.preventDefault(); choose(true); return; }
    if (!ctrl && event.key === "Escape") { choose(false); return; }
    const wanted = (ctrl ? "ctrl+" : "") + key;
    const button = Array.from(bar.querySelectorAll("[data-key]")).find(function (each) { return each.dataset.key === wanted; });
    if (!button || button.getAttribute("aria-disabled") === "true") return;
    event.preventDefault();
    button.click();
  });
  window.addEventListener("pageshow", show); // the browser keeps what was chosen when one comes back
  show();
})();
