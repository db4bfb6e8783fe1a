// One sign for everything that is saved here, decisions and drafts: the worst of them is shown.
"use strict";
(function () {
  const root = document.getElementById("review"), element = document.getElementById("saved");
  const RANK = ["saved", "saving", "failed", "refused"], ICON = { saved: "check", saving: "clock", failed: "warn", refused: "warn" };
  const states = new Map();
  // `state`: saved (words: the time), saving, failed (is tried again), refused (is not); none when there is nothing more to say.
  window.loopline.sign = function (source, state, words) {
    states.delete(source);
    if (state) states.set(source, { state: state, words: words || "" });
    if (!states.size) return;
    let worst = null;
    states.forEach(function (each) { if (!worst || RANK.indexOf(each.state) >= RANK.indexOf(worst.state)) worst = each; });
    element.className = "wk saved" + (RANK.indexOf(worst.state) > 1 ? " bad" : "");
    element.dataset.state = worst.state;
    element.innerHTML = '<svg class="i" aria-hidden="true"><use href="#i-' + ICON[worst.state] + '"/></svg>';
    element.append(root.dataset[worst.state] + (worst.words ? " " : ""), worst.words);
  };
})();
