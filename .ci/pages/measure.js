// Measures the page that is open. The result lists what is wrong, and how much was looked at.
(() => {
    const faults = [];
    const page = document.scrollingElement;
    if (page.scrollWidth > innerWidth) faults.push(`the page scrolls sideways: ${page.scrollWidth} > ${innerWidth}`);
    if (document.scripts.length > 0) faults.push(`${document.scripts.length} scripts`);
    if (!document.documentElement.lang) faults.push("no language");
    if (!document.title) faults.push("no title");
    if (document.querySelectorAll("h1").length !== 1) faults.push("not one h1");
    const handlers = [...document.querySelectorAll("*")].filter(element =>
        element.getAttributeNames().some(name => name.startsWith("on") || name === "style" || name === "src"));
    if (handlers.length > 0) faults.push(`an attribute that acts: ${handlers[0].outerHTML.slice(0, 100)}`);
    for (const link of document.links) {
        if (!link.getAttribute("href").startsWith("#") || !document.querySelector(link.getAttribute("href"))) {
            faults.push(`a link that leads nowhere or away: ${link.getAttribute("href")}`);
        }
    }
    const ids = [...document.querySelectorAll("[id]")].map(element => element.id);
    if (new Set(ids).size !== ids.length) faults.push("an id is used twice");
    for (const table of document.querySelectorAll("table")) {
        if (!table.caption) faults.push("a table without a caption");
        if ([...table.querySelectorAll("th")].some(head => !head.scope)) faults.push("a th without a scope");
        const columns = table.tHead.rows[0].cells.length;
        if ([...table.rows].some(row => row.cells.length !== columns)) faults.push("a row with another number of cells");
    }

    // Text that leaves its box lies over its neighbour.
    for (const box of document.querySelectorAll("td, th, dd, dt, p, li, h1, h2, .state, .tag, .grant")) {
        if (box.clientWidth > 0 && box.scrollWidth > box.clientWidth + 1) {
            faults.push(`text leaves its box by ${box.scrollWidth - box.clientWidth} px: ${box.textContent.trim().slice(0, 60)}`);
        }
    }

    // A wide table scrolls within its own box, and its first column stays.
    let scrolled = 0;
    for (const box of document.querySelectorAll(".scroll")) {
        const bounds = box.getBoundingClientRect();
        if (bounds.right > innerWidth + 0.5) faults.push(`a box leaves the page: ${box.getAttribute("aria-label")}`);
        if (box.scrollWidth <= box.clientWidth) continue;
        if (getComputedStyle(box).overflowX !== "auto") {
            faults.push(`a table leaves its box: ${box.getAttribute("aria-label")}`);
            continue;
        }
        if (box.tabIndex !== 0) faults.push("the keyboard does not reach a box that scrolls");
        scrolled += 1;
        box.scrollLeft = box.scrollWidth;
        for (const row of box.querySelectorAll("tr")) {
            const cell = row.cells[0].getBoundingClientRect();
            if (Math.abs(cell.left - bounds.left) > 3) faults.push("the first column does not stay");
            if (cell.width > box.clientWidth * 0.75) {
                faults.push(`the first column leaves no room: ${box.getAttribute("aria-label")}`);
            }
        }
        box.scrollLeft = 0;
    }

    // The contrast of every text with every colour behind it, by WCAG 2.
    const numbers = text => text.match(/[\d.]+/g).map(Number);
    const over = ([r, g, b, a = 1], back) => [r, g, b].map((part, index) => part * a + back[index] * (1 - a));
    const luminance = colour => {
        const [r, g, b] = colour.map(part => {
            const share = part / 255;
            return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const contrast = (one, other) => {
        const [light, dark] = [luminance(one), luminance(other)].sort((left, right) => right - left);
        return (light + 0.05) / (dark + 0.05);
    };
    const backs = element => {
        // Below the page a browser paints the colour of the system, which `Canvas` names.
        if (!element) {
            const probe = document.createElement("i");
            probe.style.color = "Canvas";
            document.body.append(probe);
            const colour = numbers(getComputedStyle(probe).color);
            probe.remove();
            return [colour];
        }
        const style = getComputedStyle(element);
        const own = numbers(style.backgroundColor);
        const gradient = style.backgroundImage.match(/rgba?\([^)]*\)/g) || [];
        const isSolid = (own[3] ?? 1) === 1;
        const below = isSolid ? [own.slice(0, 3)] : backs(element.parentElement).map(back => over(own, back));
        return gradient.length === 0 ? below : gradient.flatMap(text => below.map(back => over(numbers(text), back)));
    };
    let texts = 0;
    let least = [Infinity, ""];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const element = walker.currentNode.parentElement;
        const text = walker.currentNode.data.trim();
        if (!text || !element.checkVisibility()) continue;
        texts += 1;
        for (const back of backs(element)) {
            const ratio = contrast(over(numbers(getComputedStyle(element).color), back), back);
            if (ratio < least[0]) least = [ratio, text.slice(0, 40)];
            if (ratio < 4.5) faults.push(`contrast ${ratio.toFixed(2)}: ${text.slice(0, 40)}`);
        }
        if (parseFloat(getComputedStyle(element).fontSize) < 10.5) faults.push(`small text: ${text.slice(0, 40)}`);
    }
    if (texts === 0) faults.push("no text");
    return JSON.stringify({
        faults: [...new Set(faults)],
        texts,
        scrolled,
        least,
        height: Math.ceil(page.scrollHeight),
        back: getComputedStyle(document.body).backgroundColor,
    });
})()
