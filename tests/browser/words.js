// The words of headings, fields and buttons that are seen, without what elements inside them say: for pages.untranslated().
() => Array.from(document.querySelectorAll(
  "h1, h2, h3, th[scope=col], dt, label, legend, button, .btn, nav.stops a, .sec, .pill, .badge, .meta, .hint, .facts span"))
  .filter((e) => e.checkVisibility() && !e.closest(".id, [lang=en]"))
  .map((e) => Array.from(e.childNodes).filter((n) => n.nodeType === 3).map((n) => n.textContent).join(" ").trim())
  .filter(Boolean)
