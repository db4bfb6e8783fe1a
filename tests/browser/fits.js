// What does not fit on this page, as sentences: run in the page by pages.troubles().
() => {
  const wrong = [];
  const root = document.documentElement;
  const TEXT = "h1, h2, h3, th, td, dt, dd, button, .btn, .pill, .badge, label, summary, .chip, .v, .of, p, li > a";
  const ROWS = ".lrate > *, .stat > *, .facts > *, .head > *, .bar > *, .strip > *, .work > *, .n0 > *, .stagebar li > *";
  const SCROLLS = ".scrolls, pre, .rail, .feed, .gcanvas, select, .stops";  // these may be wider than what is seen of them
  const HIDDEN = ".vh, .skip, details:not([open]) > :not(summary)";

  function name(e) {
    const classes = typeof e.className === "string" && e.className.trim() ? "." + e.className.trim().split(/\s+/).join(".") : "";
    return e.tagName.toLowerCase() + (e.id ? "#" + e.id : "") + classes + " “" + e.textContent.trim().slice(0, 40) + "”";
  }
  function shown(e) {
    return e.checkVisibility() && e.getClientRects().length > 0 && !e.closest(HIDDEN);
  }

  if (root.scrollWidth > innerWidth) wrong.push(`the page scrolls sideways: ${root.scrollWidth} > ${innerWidth}`);
  for (const e of document.querySelectorAll(TEXT)) {
    if (!shown(e) || e.closest(SCROLLS)) continue;
    const style = getComputedStyle(e);
    if (style.textOverflow === "ellipsis") continue;  // cut on purpose, and it says so
    if (e.clientWidth && style.display !== "inline" && e.scrollWidth > e.clientWidth + 1) wrong.push(`wider than its box: ${name(e)}`);
    const sheet = e.closest(".sheet, .judge, .stat, .strip, .bar");
    if (!sheet || sheet === e) continue;
    const inner = e.getBoundingClientRect(), outer = sheet.getBoundingClientRect();
    if (inner.right > outer.right + 1 || inner.left < outer.left - 1) wrong.push(`outside its sheet: ${name(e)}`);
  }
  for (const e of document.querySelectorAll(ROWS)) {
    const next = e.nextElementSibling;
    if (!next || !shown(e) || !shown(next)) continue;
    const a = e.getBoundingClientRect(), b = next.getBoundingClientRect();
    const across = a.right > b.left + 1 && a.left < b.right - 1, down = a.bottom > b.top + 2 && a.top < b.bottom - 2;
    if (across && down) wrong.push(`lies over its neighbour: ${name(e)}`);
  }
  for (const e of document.images) if (shown(e) && e.complete && !e.naturalWidth) wrong.push("broken picture: " + e.src);
  return wrong;
}
