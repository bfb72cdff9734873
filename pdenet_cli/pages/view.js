// Canvases that show the same place: dragging moves it, wheel, pinch, double click and keys zoom.
const place = {row: facts.rows / 2, column: facts.columns / 2, zoom: 1};  // the middle; screen pixels to a pixel
const LARGEST = 64;  // screen pixels of a pixel at most
const views = [];

class View {
  // `layers()` are one or two lists of layers, from coarse to fine; two are parted at `divider`, a share of the width.
  constructor(canvas, layers) {
    Object.assign(this, {canvas, layers, divider: .5, pointers: new Map(), moved: 0});
    this.context = canvas.getContext("2d");
    views.push(this);
    this.listen();
  }

  get size() { return [this.canvas.clientWidth, this.canvas.clientHeight]; }

  // The place under a point of the screen, in pixels of the scene.
  under(event) {
    const box = this.canvas.getBoundingClientRect(), [width, height] = this.size;
    return [place.row + (event.clientY - box.top - height / 2) / place.zoom,
      place.column + (event.clientX - box.left - width / 2) / place.zoom];
  }

  draw() {
    const [width, height] = this.size, sharp = devicePixelRatio || 1, {context, canvas} = this;
    if (canvas.width !== Math.round(width * sharp)) canvas.width = Math.round(width * sharp);
    if (canvas.height !== Math.round(height * sharp)) canvas.height = Math.round(height * sharp);
    context.fillStyle = "#e9ecee";
    context.fillRect(0, 0, canvas.width, canvas.height);
    const until = performance.now() + BUDGET, lists = this.layers();
    const cut = Math.round(lists.length > 1 ? this.divider * canvas.width : canvas.width);
    let complete = true;
    lists.forEach((layers, i) => {
      context.save();
      context.beginPath();
      context.rect(i ? cut : 0, 0, i ? canvas.width - cut : cut, canvas.height);
      context.clip();
      for (const layer of layers) complete = this.drawLayer(layer, sharp, until) && complete;
      context.restore();
    });
    this.drawChosen(sharp);
    return complete;
  }

  // Whether all of it is drawn.
  drawLayer(layer, sharp, until) {
    const {context, canvas} = this, size = place.zoom * sharp, side = TILE * layer.step;
    const top = place.row - canvas.height / 2 / size, left = place.column - canvas.width / 2 / size;
    const at = (value, start) => Math.round((value - start) * size);
    const first = [top, left].map(start => Math.max(0, Math.floor(start / side)));
    const last = [[top, canvas.height, layer.rows], [left, canvas.width, layer.columns]].map(
      ([start, length, pixels]) => Math.min(Math.ceil(pixels / TILE), Math.ceil((start + length / size) / side)));
    context.imageSmoothingEnabled = size * layer.step < 1;
    context.imageSmoothingQuality = "high";
    let complete = true;
    for (let down = first[0]; down < last[0]; down++) for (let across = first[1]; across < last[1]; across++) {
      const tile = layer.tile(down, across, until), y = at(down * side, top), x = at(across * side, left);
      if (!tile) { complete = false; continue; }
      const bottom = at(down * side + tile.height * layer.step, top);
      const right = at(across * side + tile.width * layer.step, left);
      context.drawImage(tile, x, y, right - x, bottom - y);
    }
    return complete;
  }

  drawChosen(sharp) {
    if (!page.shown) return;
    const {context, canvas} = this, size = place.zoom * sharp;
    const mark = ([row, column], colours, least) => {
      const side = Math.max(size, least * sharp);
      const x = canvas.width / 2 + (column + .5 - place.column) * size - side / 2;
      const y = canvas.height / 2 + (row + .5 - place.row) * size - side / 2;
      colours.forEach((colour, i) => {
        context.strokeStyle = colour;
        context.lineWidth = sharp;
        context.strokeRect(x - i * sharp - sharp / 2, y - i * sharp - sharp / 2,
          side + (2 * i + 1) * sharp, side + (2 * i + 1) * sharp);
      });
    };
    if (page.held) mark(page.held, ["#56b4e9", "#111"], 4);
    mark(page.shown, ["#fff", "#111"], 9);
  }

  listen() {
    const {canvas, pointers} = this;
    canvas.addEventListener("wheel", event => {
      event.preventDefault();
      zoomBy(2 ** (-clamp(event.deltaY * (event.deltaMode ? 30 : 1), -300, 300) / 200), this.under(event));
    }, {passive: false});
    canvas.addEventListener("dblclick", event => zoomBy(2, this.under(event)));
    canvas.addEventListener("pointerdown", event => {
      if (!pointers.size) this.moved = 0;
      pointers.set(event.pointerId, event);
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", event => {
      if (pointers.has(event.pointerId)) this.drag(event);
      else if (event.pointerType === "mouse") page.point(this.under(event));
    });
    for (const kind of ["pointerup", "pointercancel"]) canvas.addEventListener(kind, event => {
      if (pointers.delete(event.pointerId) && kind === "pointerup" && this.moved < 5) page.choose(...this.under(event));
    });
    canvas.addEventListener("pointerleave", () => page.point(null));
  }

  drag(event) {
    const {pointers} = this, before = pointers.get(event.pointerId);
    const dx = event.clientX - before.clientX, dy = event.clientY - before.clientY;
    this.moved += Math.abs(dx) + Math.abs(dy);
    if (pointers.size === 2) {
      const [fixed] = [...pointers].filter(([id]) => id !== event.pointerId).map(([, other]) => other);
      const apart = to => Math.hypot(to.clientX - fixed.clientX, to.clientY - fixed.clientY) || 1;
      zoomBy(apart(event) / apart(before), this.under(fixed));
    } else if (this.moved >= 5) moveBy(-dy / place.zoom, -dx / place.zoom);
    pointers.set(event.pointerId, event);
  }
}

const fitting = () => Math.min(...views.map(({size}) => Math.min(size[0] / facts.columns, size[1] / facts.rows)));

function zoomBy(factor, [row, column] = [place.row, place.column]) {
  const zoom = clamp(place.zoom * factor, Math.min(fitting(), 1), LARGEST), kept = place.zoom / zoom;
  moveBy((1 - kept) * (row - place.row), (1 - kept) * (column - place.column), zoom);
}

function moveBy(rows, columns, zoom = place.zoom) {
  place.zoom = zoom;
  const [width, height] = views[0].size;
  const inside = (middle, shown, length) => shown >= length ? length / 2 : clamp(middle, shown / 2, length - shown / 2);
  place.row = inside(place.row + rows, height / zoom, facts.rows);
  place.column = inside(place.column + columns, width / zoom, facts.columns);
  redraw();
}

function showAll() {
  Object.assign(place, {row: facts.rows / 2, column: facts.columns / 2, zoom: Math.min(fitting(), LARGEST)});
  redraw();
}

let waiting = false;
function redraw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    const complete = views.map(view => view.draw()).every(Boolean);
    document.body.dataset.drawn = complete ? "all" : "part";
    if (!complete) redraw();
  });
}
