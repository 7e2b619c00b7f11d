// A real OpenID provider (oidc-provider), whose people log in without a form. Arguments: its port, and the redirect URL
// of its only client. `PUT /people` sets who there is, and who logs in next: {"login": SUB, "people": {SUB: CLAIMS}}.
import http from 'node:http'
import { Provider } from 'oidc-provider'

const [port, redirectUrl] = [Number(process.argv[2]), process.argv[3]]
let world = { login: null, people: {} }

const provider = new Provider(`http://localhost:${port}`, {
  clients: [{
    client_id: 'detent',
    client_secret: 'a secret of the client',
    redirect_uris: [redirectUrl],
    post_logout_redirect_uris: [redirectUrl.replace('/login/oidc/callback', '/login')],
    grant_types: ['authorization_code', 'refresh_token'],
  }],
  claims: { openid: ['sub'], email: ['email', 'email_verified'], profile: ['name'], groups: ['groups'] },
  cookies: { keys: ['only for tests'] },
  features: { devInteractions: { enabled: false } },
  findAccount: (context, sub) => world.people[sub] && { accountId: sub, claims: () => ({ sub, ...world.people[sub] }) },
  interactions: { url: (context, interaction) => `/interaction/${interaction.uid}` },
  issueRefreshToken: () => true,
  pkce: { required: () => true },
  rotateRefreshToken: true,
})

async function interact(request, response) {
  const { prompt, params, session } = await provider.interactionDetails(request, response)
  if (prompt.name === 'login') {
    const result = world.login ? { login: { accountId: world.login } } : { error: 'access_denied' }
    return provider.interactionFinished(request, response, result)
  }
  const grant = new provider.Grant({ accountId: session.accountId, clientId: params.client_id })
  grant.addOIDCScope(params.scope)
  const result = { consent: { grantId: await grant.save() } }
  return provider.interactionFinished(request, response, result, { mergeWithLastSubmission: true })
}

async function setWorld(request, response) {
  const parts = []
  for await (const part of request) parts.push(part)
  world = JSON.parse(Buffer.concat(parts).toString())
  response.writeHead(204).end()
}

const answer = provider.callback()
http.createServer((request, response) => {
  if (request.url.startsWith('/interaction/')) {
    return interact(request, response).catch((error) => response.writeHead(500).end(String(error)))
  }
  return request.url === '/people' ? setWorld(request, response) : answer(request, response)
}).listen(port, 'localhost', () => console.log(`listening on ${port}`))
