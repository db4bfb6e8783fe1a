// A picture larger than the stage: what is seen of it is loaded as tiles of the level that fits the zoom, pixel for
// pixel when it is close. Tiles lie in the element that is zoomed, below heat map and shapes, so everything else works on.
"use strict";
(function () {
  const SIDE = 512, SOON_MS = 80, MOST = 400; // capture pixels of a tile at level 0; tiles that are kept
  const loopline = window.loopline;
  let shown = null, layer = null, base = "", levels = 0, timer = 0;

  function wanted() { // level, and first and last column and row that are seen of it
    const density = loopline.scale() * (window.devicePixelRatio || 1);
    if (!shown.image.naturalWidth || density <= 1.05 * shown.image.naturalWidth / shown.size[0]) return null; // the stage's own picture is as sharp
    const level = Math.max(0, Math.min(levels - 1, Math.floor(Math.log2(1 / density))));
    const seen = shown.figure.getBoundingClientRect(), all = shown.pan.getBoundingClientRect(), span = SIDE * Math.pow(2, level);
    function range(from, to, start, size) {
      const scale = loopline.scale();
      return [Math.max(0, Math.floor((from - start) / scale / span)), Math.min(Math.ceil(size / span), Math.ceil((to - start) / scale / span)) - 1];
    }
    return { level: level, span: span, columns: range(seen.left, seen.right, all.left, shown.size[0]), rows: range(seen.top, seen.bottom, all.top, shown.size[1]) };
  }
  function tile(level, span, column, row, query) {
    const made = new Image(), width = shown.size[0], height = shown.size[1];
    made.className = "tile-p";
    made.alt = "";
    made.draggable = false;
    made.dataset.at = level + "/" + column + "/" + row + query;
    made.dataset.query = query;
    made.style.left = 100 * column * span / width + "%";
    made.style.top = 100 * row * span / height + "%";
    made.style.width = 100 * Math.min(span, width - column * span) / width + "%";
    made.style.height = 100 * Math.min(span, height - row * span) / height + "%";
    made.addEventListener("error", function () { made.remove(); }); // asked again at the next move
    made.src = base + level + "/" + column + "/" + row + query;
    return made;
  }
  function fill() {
    if (!layer || !layer.isConnected) return;
    const want = wanted();
    if (!want) return;
    const window_ = shown.image.src.match(/&low=[^&]*&high=[^&]*/), query = window_ ? "?" + window_[0].slice(1) : "";
    const here = new Map(Array.from(layer.children, function (made) { return [made.dataset.at, made]; }));
    for (let row = want.rows[0]; row <= want.rows[1]; row++) for (let column = want.columns[0]; column <= want.columns[1]; column++) {
      const key = want.level + "/" + column + "/" + row + query;
      if (here.has(key)) layer.append(here.get(key)); else layer.append(tile(want.level, want.span, column, row, query)); // newest last: on top
    }
    here.forEach(function (made) { if (made.dataset.query !== query) made.remove(); }); // another brightness window is another picture
    while (layer.children.length > MOST) layer.firstElementChild.remove();
  }
  function soon() { clearTimeout(timer); timer = setTimeout(fill, SOON_MS); }
  function mount(picture) {
    shown = picture; layer = null;
    if (!picture.figure.dataset.tiles) return;
    base = picture.figure.dataset.tiles.replace("0/0/0", ""); levels = Number(picture.figure.dataset.levels);
    layer = loopline.shapes.layer(picture.pan, "tiles");
    picture.image.after(layer); // below what is drawn
    picture.image.addEventListener("load", soon);
    soon();
  }
  document.addEventListener("loopline:picture", function (event) { mount(event.detail); });
  document.addEventListener("loopline:view", soon);
  if (loopline.shown()) mount(loopline.shown());
})();
