// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// How pages of runs look, and the few lines of JavaScript that show values under a pointer.
// Tested by tests/unit/report/pages.cpp.

#include <string_view>

namespace lockstep::report::html {

/// Nothing is loaded from anywhere, whatever a page holds.
inline constexpr std::string_view page_head = R"html(<meta
name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy"
content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:">
<link rel="icon" href="data:,">
)html";

/// Colours can be told apart without red and green; parts of bars have hatchings too.
inline constexpr std::string_view page_style = R"css(
:root{color-scheme:light dark;--page:#f6f7f9;--card:#fff;--ink:#1c2430;--soft:#5b6675;--line:#dfe3e9;--grid:#e8ebf0;
--c0:#1b66b5;--c1:#c94f00;--c2:#00795a;--c3:#8250b5;--c4:#a87a00;--c5:#b0305f;--c6:#3f7f8c;--c7:#6b6b6b;
--data:#b8923f;--forward:#8fbbe4;--backward:#2f5f98;--update:#8a63b3;--hidden:#00795a;--exposed:#d55e00}
@media (prefers-color-scheme:dark){:root{--page:#12151a;--card:#1b1f26;--ink:#e4e8ee;--soft:#9aa5b4;--line:#303742;
--grid:#2a303a;
--c0:#6cb0f5;--c1:#ff9a57;--c2:#4fcfa8;--c3:#c39af0;--c4:#e3bd4a;--c5:#f58fb4;--c6:#82cbd8;--c7:#b5b5b5;
--data:#cba75a;--forward:#a9cff2;--backward:#5089cc;--update:#a983d1;--hidden:#2fae88;--exposed:#f08a3c}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
main{max-width:1200px;margin:0 auto;padding:24px 20px 48px}
h1{font-size:1.6rem;line-height:1.2;margin:0 0 4px;overflow-wrap:anywhere}
h2{font-size:1.1rem;margin:0 0 12px}h3{font-size:.95rem;margin:20px 0 8px}
.lead{color:var(--soft);margin:0 0 18px}
.note{color:var(--soft);margin:6px 0}
section,figure,.tile{background:var(--card);border:1px solid var(--line);border-radius:10px}
section{padding:16px 18px;margin:0 0 16px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(130px,1fr));gap:12px;margin:0 0 16px}
.tile{padding:10px 14px}.tile dt{color:var(--soft);font-size:.85rem}
.tile dd{margin:0;font-size:1.3rem;font-weight:600;overflow-wrap:anywhere;font-variant-numeric:tabular-nums}
.tile dd.long{font:600 .95rem/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
.tile dd.remark{font-size:.82rem;font-weight:400;color:var(--soft)}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr));gap:16px;margin:0 0 16px}
figure{margin:0;padding:14px 16px 10px}
figcaption{font-weight:600}figcaption small{color:var(--soft);font-weight:400;font-size:.85rem}
.keys{display:flex;flex-wrap:wrap;gap:2px 16px;margin:4px 0 10px;font-size:.85rem;color:var(--soft)}
.key{display:inline-flex;align-items:center;gap:6px;overflow-wrap:anywhere}
.key b{color:var(--ink);font-variant-numeric:tabular-nums}
.key i{flex:none;width:14px;height:4px;border-radius:2px}.key i:not([class]){background:currentColor}
.key.faint i{opacity:.45}
.key i[class]{height:12px;border-radius:3px}
.plot{position:relative;height:230px;margin:0 6px 24px 58px}
.plot svg{position:absolute;inset:0;width:100%;height:100%;overflow:visible}
.plot path{fill:none;vector-effect:non-scaling-stroke;stroke-linecap:round;stroke-linejoin:round}
.plot .grid{stroke:var(--grid);stroke-width:1}
.curve{stroke-width:2}.curve.faint{stroke-width:1.2;opacity:.45}.dots{stroke-width:6}
.plot span{position:absolute;font-size:12px;line-height:1;color:var(--soft);white-space:nowrap;
font-variant-numeric:tabular-nums}
.plot .y{right:100%;margin-right:8px;transform:translateY(-50%)}
.plot .x{top:100%;margin-top:7px;transform:translateX(-50%)}
.plot .now{position:absolute;top:0;bottom:0;width:1px;background:var(--soft);pointer-events:none;display:none}
.axis{margin:0;text-align:center;font-size:12px;color:var(--soft)}
.values{margin:0;min-height:1.4em;font-size:.85rem;font-variant-numeric:tabular-nums}
.c0{color:var(--c0)}.c1{color:var(--c1)}.c2{color:var(--c2)}.c3{color:var(--c3)}.c4{color:var(--c4)}
.c5{color:var(--c5)}.c6{color:var(--c6)}.c7{color:var(--c7)}
path[class*=" c"]{stroke:currentColor}.curve.c1,.curve.c5{stroke-dasharray:7 5}
.curve.c3,.curve.c7{stroke-dasharray:2 5}.curve.alone{stroke-dasharray:none}
.key.c1:not(.alone) i,.key.c5:not(.alone) i{
background:repeating-linear-gradient(90deg,currentColor 0 5px,transparent 5px 8px)}
.key.c3:not(.alone) i,.key.c7:not(.alone) i{
background:repeating-linear-gradient(90deg,currentColor 0 2px,transparent 2px 5px)}
.key{color:inherit}.keys .key{color:var(--soft)}.keys .c0 i{color:var(--c0)}.keys .c1 i{color:var(--c1)}
.keys .c2 i{color:var(--c2)}.keys .c3 i{color:var(--c3)}
.keys .c4 i{color:var(--c4)}.keys .c5 i{color:var(--c5)}.keys .c6 i{color:var(--c6)}.keys .c7 i{color:var(--c7)}
.row{display:grid;grid-template-columns:minmax(84px,130px) 1fr minmax(76px,auto);gap:10px;align-items:center;
margin:6px 0;font-size:.9rem}
.row .name{overflow-wrap:anywhere}.row .value{text-align:right;font-variant-numeric:tabular-nums}
.bar{display:flex;height:22px;border-radius:4px;overflow:hidden;background:var(--grid)}
.bar span{flex:none;min-width:1px}
.data{background:var(--data)}.forward{background:var(--forward)}.backward{background:var(--backward)}
.update{background:var(--update)}.hidden{background:var(--hidden)}
.exposed{
background:repeating-linear-gradient(45deg,var(--exposed) 0 5px,color-mix(in srgb,var(--exposed),#000 22%) 5px 8px)}
.none{background:transparent}
.m0{background:var(--backward)}.m1{background:var(--forward)}.m2{background:var(--update)}.m3{background:var(--data)}
.m4{background:var(--hidden)}.m5{background:var(--c7)}
.scroll{overflow:auto;max-height:460px;border-radius:6px;margin-top:12px}
.scroll:focus-visible,summary:focus-visible,pre:focus-visible{outline:2px solid var(--c0);outline-offset:2px}
table{border-collapse:collapse;width:100%;font-size:.9rem;font-variant-numeric:tabular-nums}
caption{text-align:left;color:var(--soft);padding:0 0 6px;font-size:.85rem}
th,td{padding:5px 10px;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}
th{font-weight:600}th[scope=row]{text-align:left}thead th{position:sticky;top:0;background:var(--card)}
thead th:first-child{text-align:left}
.words td,.words thead th{text-align:left;white-space:normal;overflow-wrap:anywhere}
.words th[scope=row]{width:1%;vertical-align:top;font-weight:400;color:var(--soft)}
.words tr.differs td{font-weight:600}
pre{margin:0;padding:10px 12px;overflow-x:auto;background:var(--page);border:1px solid var(--line);border-radius:6px;
font:13px/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
.wide{overflow-x:auto}.wide img{display:block;min-width:900px;width:100%;height:auto;border-radius:6px}
summary{cursor:pointer}
@media (max-width:560px){main{padding:16px 12px 32px}h1{font-size:1.3rem}.tiles{grid-template-columns:1fr 1fr;gap:8px}
.tile dd{font-size:1.1rem}
table{font-size:.82rem}th,td{padding:5px}th[scope=row]{white-space:normal}section{padding:14px 12px}
figure{padding:12px 10px 8px}.plot{height:200px;margin-left:50px}
.row{grid-template-columns:72px 1fr 70px;gap:8px;font-size:.82rem}}
@media print{body{background:#fff}section,figure,.tile{break-inside:avoid}.scroll{max-height:none}}
)css";

inline constexpr std::string_view page_script = R"js(
for(const plot of document.querySelectorAll('.plot')){
const d=plot.dataset,x0=+d.x0,x1=+d.x1,y0=+d.y0,y1=+d.y1,log=d.log==='1';
const curves=[...plot.querySelectorAll('.curve')].map(c=>({name:c.dataset.name,
at:[...c.getAttribute('d').matchAll(/[ML]([-\d.]+) ([-\d.]+)/g)].map(m=>[+m[1],+m[2]])}));
const line=document.createElement('div');line.className='now';plot.append(line);
const out=plot.parentElement.querySelector('.values');
const say=v=>Math.abs(v)>=1000?Math.round(v).toLocaleString('en'):String(+v.toPrecision(4));
plot.addEventListener('pointermove',e=>{
const box=plot.getBoundingClientRect(),x=1000*(e.clientX-box.left)/box.width;let where=null;const words=[];
for(const c of curves){let best=null;for(const p of c.at)if(!best||Math.abs(p[0]-x)<Math.abs(best[0]-x))best=p;
if(!best)continue;if(where===null||Math.abs(best[0]-x)<Math.abs(where-x))where=best[0];
const t=1-best[1]/1000;words.push(c.name+' '+say(log?y0*(y1/y0)**t:y0+(y1-y0)*t))}
if(where===null)return;line.style.left=where/10+'%';line.style.display='block';
out.textContent=d.x+' '+say(x0+(x1-x0)*where/1000)+': '+words.join(', ')});
plot.addEventListener('pointerleave',()=>{line.style.display='none';out.textContent=''});
}
)js";

}  // namespace lockstep::report::html
