"""What each attack does, in a few lines of plain symbols; docs/attacks.md shows them beside the registry's facts.

Kept apart from the classes because a class is documented by its loop; these lines are for who reads the page.
"""

from typing import Final

NOTATION: Final = """
x0: the clean image; x: the present one; y: its label, or the target
z(x): logits; p(x) = softmax(z(x)); g: gradient of the loss at x, in the direction that helps the attacker
L: cross-entropy of the true label, or minus that of the target: the attacker climbs it
m(x): margin, z_y minus the best other logit (targeted: best other minus z_y); the goal is reached below 0
P: the nearest point of the eps-ball inside the pixel box [0, 1]
step(g, a): the step of length a that climbs fastest: a * sign(g) under Linf, a * g / |g|_2 under L2,
            all of a on the steepest values, each up to its room, under L1
"""

FORMULAS: Final[dict[str, str]] = {
    "fgsm": "x = P(x0 + eps * sign(g(x0)))",
    "fg": "x = P(x0 + step(g(x0), eps))",
    "bim": "x <- P(x + step(g(x), rel_step * eps)), from x0",
    "pgd": "x <- P(x + step(g(x), rel_step * eps)), from a random point of the ball; again for each restart",
    "mim": "v <- decay * v + g(x) / |g(x)|_1\nx <- P(x + step(v, path * eps / steps)), from x0",
    "dim": "as mim, with g taken at T(x): with `probability`, x shrunk to a random size, `low` or more,\n"
    "and padded at random",
    "tim": "as mim, with g replaced by W * g: the gradient smoothed by a Gaussian window of `kernel` pixels",
    "liu": "u: Adam's update on the gradient of log(1 - p_y(x)), or of log p_y(x) towards a target\n"
    "x <- P(x + rate * u), from x0",
    "apgd": "ahead = P(x + step(g(x), a))\nx <- P(x + 0.75 * (ahead - x) + 0.25 * (x - x_before))\n"
    "a = 2 * eps at first; at checkpoints, where the loss rose too rarely, a is halved and the best point taken up",
    "apgd-t": "apgd on (z_t - z_y) / (z_1st - (z_3rd + z_4th) / 2), for each of `targets` classes t",
    "pma": "a_k = eps * (1 + cos(pi * k / steps))\n"
    "ahead = P(x + step(g(x), a_k)), with g of max over j != y of p_j - p_y\n"
    "x <- P(x + 0.75 * (ahead - x) + 0.25 * (x - x_before))",
    "nearest": "the steps of pma on the loss of apgd-t, towards the `targets` classes of least\n"
    "(z_y - z_t) / |grad z_y - grad z_t|_dual at x0",
    "autoattack": "apgd on L, then apgd-t, fab and square, each on what those before left standing",
    "express": "pma (20 steps); nearest (20) where it may decide; apgd-t (100, 3 classes) where little margin is left\n"
    "fab (10) and square (200) on one survivor in eight",
    "deepfool": "for each class t: w_t = grad z_t - grad z_y, f_t = z_y - z_t\n"
    "total <- total + the shortest step d with w_t . d = f_t, over all t;  x = clip(x0 + (1 + overshoot) * total)",
    "cw": "minimise |x - x0|_2^2 + c * max(m(x) + kappa, 0) over w, x = (1 + tanh w) / 2, by Adam;\n"
    "search c: ten times larger until it succeeds, then by bisection",
    "cw-fast": "the loss of cw; the first c and the step length by a linear model of the image;\n"
    "each descent from the closest success so far, at half the rate",
    "ead": "minimise c * max(m(x) + kappa, 0) + |x - x0|_2^2 + beta * |x - x0|_1 by FISTA:\n"
    "x <- x0 + shrink(v - rate * grad - x0, beta);  v <- x + k / (k + 3) * (x - x_before);  search c as in cw",
    "ead-fast": "the loss of ead; the first c by a linear model of the image;\n"
    "each descent from the closest success so far, at half the rate; then bisect towards x0",
    "ddn": "x <- x0 + r * unit(x + a_k * g / |g|_2 - x0), a_k falling along a cosine\n"
    "r <- r * (1 - gamma) where the goal is reached, else r * (1 + gamma)",
    "fmn": "x <- P_r(x + a_k * g / |g|_2), with g of -m and P_r onto the ball of the row's own radius r\n"
    "r shrinks by gamma_k where the goal is reached, else grows; until the first success r = |x - x0| + |m| / |g|_dual",
    "fab": "d, d0: shortest steps from x and from x0 onto the tangent of the boundary at x, inside the box\n"
    "x <- (1 - alpha) * (x + eta * d) + alpha * (x0 + eta * d0), alpha = min(|d| / (|d| + |d0|), alpha_max)\n"
    "x <- x0 + beta * (x - x0) wherever the goal is reached",
    "minimum-radius": "least eps at which `attack` succeeds: grow it until success, then close in to `tolerance`",
    "square": "x' = P(x with +-eps, a sign a channel, on a random square of a part p of it); keep x' if m(x') < m(x)\n"
    "p falls from p_init by halves; under L2 and L1 bumps of the norm that is left move between windows",
    "nes": "g = mean over u of (m(x - sigma * u) - m(x + sigma * u)) / (2 * sigma) * u, u normal\n"
    "x <- P(x + step(g, rel_step * eps)); the step is halved where the margin stands still",
    "spsa": "g as in nes with u of random signs;  x <- P(x + rate * Adam(g))",
    "nattack": "x = P((1 + tanh(atanh(2 * x0 - 1) + mu + sigma * u)) / 2), u normal\n"
    "mu <- mu + rate / sigma * mean over u of standardised(-m(x)) * u",
    "zoo": "the loss of cw, with differences (L(x + h e_i) - L(x - h e_i)) / (2 h) along `samples` values i,\n"
    "and Adam, or Newton by second differences, value by value",
    "rgf": "g = mean over u of (m(x) - m(x + sigma * u)) / sigma * u, u uniform on a sphere\n"
    "x <- P(x + step(g, rel_step * eps))",
    "prgf": "as rgf with u = sqrt(w) * v + sqrt(1 - w) * u', v the surrogate's gradient, u' orthogonal to it\n"
    "w by closed form from the cosine between v and the slope, itself estimated from queries",
    "simba": "q: a random pattern of the basis, each once\n"
    "x' = P(x +- rel_step * eps * q / |q|); keep x' if m(x') < m(x)",
    "bandits": "v: a slope that lasts over steps\n"
    "s = m(x + probe * unit(v - u)) - m(x + probe * unit(v + u)), u normal\n"
    "v <- tanh(atanh v + rate * s * u) under Linf, v + rate * s * u under L2;  x <- P(x + step(v, rel_step * eps))",
    "boundary": "x' = a random turn of x around x0 by `around`, then a part `towards` of the way to x0\n"
    "keep x' if it reaches the goal; both lengths adapt to how often that happens",
    "evolutionary": "x' = on the sphere of radius (1 - mu) * |x - x0|: x + z, z normal with variances C on few values\n"
    "keep x' if it reaches the goal; then path <- decay * path + z, C <- (1 - c) * C + c * path^2",
    "opt": "d(t): distance to the boundary along direction t, by bisection\n"
    "t <- t - alpha * mean over u of (d(t + beta * u) - d(t)) / beta * u",
    "sign-opt": "t <- t - alpha * mean over u of sign(d(t + beta * u) - d(t)) * u, the sign by one query",
    "hopskipjump": "n = unit(mean over u of (h(x + r * u) - mean h) * u), h = 1 where the goal is reached\n"
    "x <- bisect towards x0 from x + a * n, a = |x - x0| / sqrt(k), halved until it reaches the goal",
    "rays": "s: a vector of signs;  d(s): least r at which x0 + r * s reaches the goal\n"
    "flip ever smaller blocks of s; keep a flip if the goal is still reached at d(s), then search its d by bisection",
    "geoda": "n <- n + normal of the boundary at x, from labels of low-frequency noise\n"
    "x <- where the ray from x0 along n (along sign(n) under Linf) meets the boundary",
    "transfer": "x = `attack` run to its end on the model `source`; shown to the model under attack once",
    "uniform-noise": "x = P(x0 + u), u uniform in the ball; `steps` draws",
    "gaussian-noise": "x = P(x0 + eps * u / |u|), u normal; `steps` draws",
}
