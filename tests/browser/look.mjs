// Opens a page in Chromium without a network and prints what it finds as JSON: node look.mjs PAGE FOLDER
// The browser comes with its libraries and fonts in an npm package; it is unpacked into $TMPDIR.
import { existsSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import chromium, { inflate, setupLambdaEnvironment } from "@sparticuz/chromium";
import puppeteer from "puppeteer-core";

const [file, folder] = process.argv.slice(2);
const url = pathToFileURL(file).href;
const WIDTHS = [400, 1400];
const SCHEMES = ["light", "dark"];

async function unpacked() {
  const packed = join(dirname(fileURLToPath(import.meta.resolve("@sparticuz/chromium"))), "..", "bin");
  if (!existsSync(join(tmpdir(), "al2023"))) await inflate(join(packed, "al2023.tar.br"));
  setupLambdaEnvironment(join(tmpdir(), "al2023", "lib"));
  const fonts = [join(tmpdir(), "fonts"), "/usr/share/fonts"].map((each) => `<dir>${each}</dir>`).join("");
  process.env.FONTCONFIG_FILE = join(tmpdir(), "fonts.conf");
  const cache = `<cachedir>${join(tmpdir(), "fonts-cache")}</cachedir>`;
  writeFileSync(process.env.FONTCONFIG_FILE, `<?xml version="1.0"?><fontconfig>${fonts}${cache}</fontconfig>`);
  return chromium.executablePath(packed);
}

// What a test asks of the page itself.
function facts() {
  const targets = [...document.querySelectorAll("*")].map((each) => each.getAttribute("href")).filter(Boolean);
  const inside = targets.filter((target) => target.startsWith("#")).map((target) => decodeURIComponent(target.slice(1)));
  const ids = [...document.querySelectorAll("[id]")].map((each) => each.id);
  const known = new Set(ids);
  const title = document.createRange();
  title.selectNodeContents(document.querySelector("h1"));
  const texts = [...document.querySelectorAll("body *")].filter(
    (each) => !each.closest("svg, script, style") && [...each.childNodes].some((node) => node.nodeType === 3 && node.data.trim()),
  );
  return {
    links: inside.length,
    dead: inside.filter((id) => !known.has(id)),
    outside: targets.filter((target) => !target.startsWith("#") && target !== "data:,"),
    twice: ids.filter((id, index) => ids.indexOf(id) !== index),
    wide: document.documentElement.scrollWidth - window.innerWidth,
    title_px: title.getBoundingClientRect().width,
    smallest_px: Math.min(...texts.map((each) => parseFloat(getComputedStyle(each).fontSize))),
    unnamed: [...document.querySelectorAll("div[role]")].filter((each) => !each.ariaLabel).length,
  };
}

// Rests on a row, then follows the link of its node in the graph.
async function row_and_node(page) {
  const row = await page.$("tbody tr[id][data-lit]");
  if (!row) return null;
  await row.hover();
  const token = await row.evaluate((each) => each.dataset.lit);
  const lit = await page.$$eval(`[data-lit~="${token}"]`, (found) => found.map((each) => [each.tagName, each.matches(".lit")]));
  await page.$eval(`g[data-lit~="${token}"]`, (each) => each.closest("a").dispatchEvent(new MouseEvent("click", { bubbles: true })));
  const target = await page.evaluate(() => document.querySelector(":target")?.id);
  return { lit, target, row: await row.evaluate((each) => each.id) };
}

const browser = await puppeteer.launch({
  executablePath: await unpacked(),
  args: ["--no-sandbox", "--disable-gpu", "--font-render-hinting=none"],
  headless: "shell",
});
const views = [];
for (const width of WIDTHS)
  for (const scheme of SCHEMES) {
    const page = await browser.newPage();
    const complaints = [];
    const fetched = [];
    page.on("console", (message) => complaints.push(`${message.type()}: ${message.text()}`));
    page.on("pageerror", (error) => complaints.push(String(error)));
    page.on("request", (request) => fetched.push(request.url()));
    await page.setOfflineMode(true);
    await page.setViewport({ width, height: 900 });
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
    await page.goto(url);
    const screenshot = join(folder, `${width}-${scheme}.png`);
    await page.screenshot({ path: screenshot });
    const found = { ...(await page.evaluate(facts)), pair: await row_and_node(page) };
    views.push({ width, scheme, screenshot, complaints, fetched: fetched.filter((each) => each !== url && each !== "data:,"), ...found });
    await page.close();
  }
const version = await browser.version();
await browser.close();
console.log(JSON.stringify({ version, views }));
