"use strict";
(() => {
  const root = document.documentElement;
  const data = JSON.parse(document.getElementById("data").textContent);
  const make = (kind, name, text) => {
    const node = document.createElement(kind);
    if (name) node.className = name;
    if (text !== undefined) node.textContent = text;
    return node;
  };
  root.classList.add("js");

  // Colours: as the system has them, or light, or dark.
  const themes = ["auto", "light", "dark"];
  const toggle = document.getElementById("theme");
  const wear = (theme) => {
    if (theme === "auto") delete root.dataset.theme; else root.dataset.theme = theme;
    toggle.textContent = `Theme: ${theme}`;
    toggle.value = theme;
  };
  let kept = "auto";
  try { kept = localStorage.getItem("tsadapt-theme") || "auto"; } catch { /* not kept where storage is refused */ }
  wear(themes.includes(kept) ? kept : "auto");
  toggle.addEventListener("click", () => {
    const next = themes[(themes.indexOf(toggle.value) + 1) % themes.length];
    wear(next);
    try { localStorage.setItem("tsadapt-theme", next); } catch { /* as above */ }
  });

  // Runs as tabs.
  const tabs = [...document.querySelectorAll("[role=tab]")];
  const articles = [...document.querySelectorAll("article")];
  const show = (id) => {
    articles.forEach((one) => { one.hidden = one.id !== id; });
    tabs.forEach((one) => {
      const on = one.id === `tab-${id}`;
      one.setAttribute("aria-selected", on);
      one.tabIndex = on ? 0 : -1;
    });
  };
  const follow = () => {
    const place = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const article = place && place.closest("article");
    if (!article) return false;
    show(article.id);
    place.scrollIntoView();
    return true;
  };
  if (tabs.length) {
    tabs.forEach((tab, i) => {
      tab.addEventListener("click", () => show(tab.id.slice(4)));
      tab.addEventListener("keydown", (event) => {
        const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!by) return;
        const next = tabs[(i + by + tabs.length) % tabs.length];
        next.focus();
        next.click();
      });
    });
    if (!follow()) show(articles.find((one) => one.dataset.first === "1").id);
    addEventListener("hashchange", follow);
  }

  // Predictions: filters, more of them, and one in large.
  const PAGE = { true: 60, false: 100 };
  const dialog = document.getElementById("large");
  let around = [], at = 0, shownRun = null;
  const truthOf = (run, tile) => (tile.truth < 0 ? "another class" : run.classes[tile.truth]);
  const wrong = (tile) => tile.truth !== undefined && tile.truth !== tile.guess;

  const picture = (run, tile) => {
    const uri = data.pictures[tile.picture];
    if (!uri) return make("span", "no-image", tile.name);
    const image = make("img");
    image.src = uri;
    image.alt = tile.name;
    return image;
  };
  const card = (run, tile) => {
    const node = make("button", tile.doubtful ? "tile doubtful" : "tile");
    node.type = "button";
    const caption = make("span", "caption");
    caption.append(make("span", "guess", run.classes[tile.guess]));
    caption.append(make("span", "second", tile.second === undefined ? tile.sure : `${tile.sure}, or ${run.classes[tile.second]}`));
    if (wrong(tile)) caption.append(make("span", "truth", `measured: ${truthOf(run, tile)}`));
    const name = make("span", "name", tile.name);
    name.title = tile.name;
    caption.append(name);
    node.append(picture(run, tile), caption);
    return node;
  };
  const line = (run, tile, measured) => {
    const node = make("tr", tile.doubtful ? "tile doubtful" : "tile");
    const name = make("th", "", tile.name);
    name.scope = "row";
    node.append(name, make("td", "", run.classes[tile.guess]), make("td", "n", tile.sure));
    node.append(make("td", "", tile.second === undefined ? "" : run.classes[tile.second]));
    if (measured && tile.truth === undefined) node.append(make("td"));
    else if (measured) node.append(wrong(tile) ? make("td", "truth", truthOf(run, tile)) : make("td", "sub", "right"));
    (tile.cells || []).forEach((value) => node.append(make("td", "n", value)));
    return node;
  };
  const enlarge = (run, tiles, i) => {
    around = tiles; at = i; shownRun = run;
    const tile = tiles[i];
    const image = document.getElementById("large-image"), text = document.getElementById("large-text");
    image.src = data.pictures[tile.picture] || "data:,";
    image.hidden = !data.pictures[tile.picture];
    image.alt = tile.name;
    image.classList.toggle("pixelated", run.pixelated);
    text.replaceChildren(make("b", "", run.classes[tile.guess]));
    if (run.right) text.append(make("p", "", `right with probability ${tile.sure}`));
    text.append(make("p", "", `softmax ${tile.softmax}${tile.second === undefined ? "" : `, then ${run.classes[tile.second]}`}`));
    if (tile.truth !== undefined) text.append(make("p", wrong(tile) ? "truth" : "", `measured: ${truthOf(run, tile)}`));
    text.append(make("p", "hint", tile.name));
    document.getElementById("large-before").disabled = i === 0;
    document.getElementById("large-next").disabled = i === tiles.length - 1;
    if (!dialog.open) dialog.showModal();
  };
  const turn = (by) => { if (around[at + by]) enlarge(shownRun, around, at + by); };
  document.getElementById("large-before").addEventListener("click", () => turn(-1));
  document.getElementById("large-next").addEventListener("click", () => turn(1));
  dialog.addEventListener("keydown", (event) => turn({ ArrowRight: 1, ArrowLeft: -1 }[event.key] || 0));
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });

  data.runs.forEach((run) => {
    const part = document.getElementById(run.id);
    const gallery = part.querySelector(".gallery"), more = part.querySelector(".more"), count = part.querySelector(".count");
    const byClass = part.querySelector(".by-class"), byDoubt = part.querySelector(".by-doubt"), byWrong = part.querySelector(".by-wrong");
    let tiles = run.tiles, drawn = 0;
    const draw = (upto) => {
      const some = tiles.slice(drawn, upto).map((tile, i) => {
        const place = drawn + i;
        if (!run.images) return line(run, tile, !!byWrong);
        const node = card(run, tile);
        node.addEventListener("click", () => enlarge(run, tiles, place));
        return node;
      });
      gallery.append(...some);
      drawn += some.length;
      more.hidden = drawn >= tiles.length;
      count.textContent = `${drawn} of ${tiles.length}`;
    };
    const filter = () => {
      tiles = run.tiles.filter((tile) => (byClass.value === "" || tile.guess === Number(byClass.value))
        && (!byDoubt.checked || tile.doubtful) && (!byWrong || !byWrong.checked || wrong(tile)));
      gallery.replaceChildren();
      drawn = 0;
      draw(run.first);
    };
    [byClass, byDoubt, byWrong].forEach((control) => control && control.addEventListener("change", filter));
    more.addEventListener("click", () => draw(drawn + PAGE[run.images]));
    filter();

    // The map.
    const hue = part.querySelector(".by-hue");
    if (hue) {
      const planes = [...part.querySelectorAll(".plane")], legend = part.querySelector(".hues");
      hue.addEventListener("change", () => {
        const only = /^\d+$/.test(hue.value) ? hue.value : null;
        if (legend) legend.hidden = hue.value !== "class";
        planes.forEach((plane) => {
          plane.classList.toggle("hue", hue.value === "class");
          plane.querySelectorAll(".pt").forEach((point) => point.classList.toggle("dim", only !== null && point.dataset.l !== only));
        });
      });
      planes.forEach((plane, i) => {
        const points = [...plane.querySelectorAll(".pt")];
        const places = new Map(points.map((point, j) => [point, run.planes[i][j]]));
        const over = (event) => {
          const found = places.get(event.target);
          if (!found) { hideTip(); return; }
          const [target, name, label, sure, key] = found;
          const lines = [make("b", "", label < 0 ? "source" : run.classes[label])];
          lines.push(make("div", "", target ? `predicted, softmax ${sure}` : "source, as labelled"));
          if (name) lines.push(make("div", "hint", name));
          showTip(event, lines, data.pictures[key], run.pixelated);
        };
        plane.addEventListener("pointerover", over);
        plane.addEventListener("pointerdown", over);
        plane.addEventListener("pointerleave", hideTip);
      });
    }
  });

  // What is pointed at.
  const tip = document.getElementById("tip");
  function showTip(event, lines, uri, pixelated) {
    const image = tip.firstElementChild;
    image.hidden = !uri;
    if (uri) image.src = uri;
    image.classList.toggle("pixelated", !!pixelated);
    tip.lastElementChild.replaceChildren(...lines);
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 4))}px`;
    const below = event.clientY + 14;
    tip.style.top = `${below + box.height > innerHeight ? Math.max(4, event.clientY - box.height - 14) : below}px`;
  }
  function hideTip() { tip.hidden = true; }
  addEventListener("scroll", hideTip, { passive: true });

  document.querySelectorAll(".chart svg").forEach((chart) => {
    const places = JSON.parse(chart.dataset.places), dot = chart.querySelector(".dot");
    chart.addEventListener("pointermove", (event) => {
      const spot = new DOMPoint(event.clientX, event.clientY).matrixTransform(chart.getScreenCTM().inverse());
      const [x, y, step, value] = places.reduce((a, b) => (Math.abs(b[0] - spot.x) < Math.abs(a[0] - spot.x) ? b : a));
      dot.setAttribute("cx", x);
      dot.setAttribute("cy", y);
      dot.removeAttribute("hidden");
      showTip(event, [make("b", "", value), make("div", "hint", `step ${step}`)]);
    });
    chart.addEventListener("pointerleave", () => { dot.setAttribute("hidden", ""); hideTip(); });
  });

  // Tables that sort.
  document.querySelectorAll(".sortable").forEach((table) => {
    const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
    heads.forEach((head, column) => {
      const button = head.querySelector("button");
      button.disabled = false;
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const key = (row) => row.cells[column].dataset.key;
        const rows = [...body.rows].sort((a, b) => {
          const x = key(a), y = key(b);
          if ((x === "") !== (y === "")) return x === "" ? 1 : -1;
          const gap = Number(x) - Number(y);
          const order = Number.isNaN(gap) ? x.localeCompare(y, undefined, { numeric: true }) : gap;
          return down ? -order : order;
        });
        body.append(...rows);
      });
    });
  });

  addEventListener("beforeprint", () => document.querySelectorAll("details:not(.config)").forEach((one) => { one.open = true; }));
})();
