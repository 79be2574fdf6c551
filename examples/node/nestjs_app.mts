// NestJS with a limit on everything and a stricter one on logging in.
//
//   tsc --strict --module nodenext --target es2022 --experimentalDecorators --types node nestjs_app.mts && node nestjs_app.mjs
import "reflect-metadata";
import { Controller, HttpCode, Module, Post } from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import { RateLimit, RateLimitGuard } from "tollkeeper/nestjs";

const store = process.env["STORE"] ?? "memory:"; // "redis://127.0.0.1:6379" for several processes

@Controller()
class AccountController {
  @Post("/login")
  @HttpCode(200)
  @RateLimit("5/min", { store })
  login(): string {
    return "ok";
  }
}

@Module({ controllers: [AccountController] })
class AppModule {}

const app = await NestFactory.create(AppModule, { logger: false });
app.useGlobalGuards(new RateLimitGuard("100/min burst 20", { store }));
await app.listen(Number(process.env["PORT"] ?? 3000), "127.0.0.1");
